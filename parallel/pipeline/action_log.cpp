#include "parallel/pipeline/action_log.h"

#include <algorithm>

#include "core/uncounted_memory.h"

namespace stagecoach {
namespace {

constexpr std::size_t kComputations = 4;  // forward, backward and its two parts; updates are counted by rank
constexpr Operation kOperationOf[kComputations] = {Operation::forward, Operation::backward, Operation::backward_input,
                                                   Operation::backward_weight};

}  // namespace

ActionLog::ActionLog(Communicator& comm, int stages)
    : comm_(comm),
      stages_(stages),
      sums_(static_cast<std::size_t>(stages) * kComputations + static_cast<std::size_t>(comm.size())),
      after_(sums_.size()) {
  clear();
}

std::size_t ActionLog::slot_of(const Action& action) const {
  if (!is_computation(action.operation)) {
    return slot_of_update();
  }
  return static_cast<std::size_t>(action.stage) * kComputations + static_cast<std::size_t>(action.operation);
}

ActionSeconds ActionLog::of_all_ranks(const std::vector<double>& of_mine) const {
  const UncountedMemory uncounted;  // the times are no part of what training needs
  std::vector<double> counts(static_cast<std::size_t>(comm_.size()));
  counts[static_cast<std::size_t>(comm_.rank())] = static_cast<double>(of_mine.size());
  ActionSeconds all;
  std::vector<double> flat;  // of all ranks, one after the other; on each rank only its own values are not 0
  for (const double length : comm_.sum_numbers(counts)) {
    const bool mine = static_cast<int>(all.size()) == comm_.rank();
    all.emplace_back(static_cast<std::size_t>(length));
    const std::vector<double>& values = mine ? of_mine : all.back();
    flat.insert(flat.end(), values.begin(), values.end());
  }
  flat = comm_.sum_numbers(flat);
  auto next = flat.begin();
  for (std::vector<double>& rank : all) {
    std::copy_n(next, rank.size(), rank.begin());
    next += static_cast<std::ptrdiff_t>(rank.size());
  }
  return all;
}

void ActionLog::clear() {
  std::fill(sums_.begin(), sums_.end(), Sum{});
  std::fill(after_.begin(), after_.end(), 0);
  norm_work_ = 0;
  seconds_.clear();
  before_.clear();
  last_ = slot_of_update();  // what comes before the first action comes after the update of the step before
  ended_ = worked();
}

Costs ActionLog::mean_costs() const {
  std::vector<double> flat;
  for (std::size_t slot = 0; slot < sums_.size(); ++slot) {
    flat.insert(flat.end(), {sums_[slot].count, sums_[slot].total, after_[slot]});
  }
  flat.resize(flat.size() + static_cast<std::size_t>(comm_.size()));
  flat[3 * sums_.size() + static_cast<std::size_t>(comm_.rank())] = norm_work_;
  flat = comm_.sum_numbers(flat);
  const auto mean = [&](std::size_t slot, std::size_t which = 1) {
    return flat[3 * slot + which] / std::max(flat[3 * slot], 1.0);
  };

  const auto stages = static_cast<std::size_t>(stages_);
  Costs costs;
  std::size_t slot = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    for (auto* of_operation : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weight}) {
      costs.after[{kOperationOf[slot % kComputations], static_cast<int>(s)}] = mean(slot, 2);
      of_operation->push_back(mean(slot++));
    }
  }
  costs.message.assign(stages - 1, 0);
  for (int rank = 0; slot < sums_.size(); ++rank) {
    costs.after[{Operation::update, rank}] = mean(slot, 2);
    costs.norm_work.push_back(flat[3 * sums_.size() + static_cast<std::size_t>(rank)] / std::max(flat[3 * slot], 1.0));
    costs.update.push_back(mean(slot++));
  }
  return costs;
}

ActionLog::Scope::Scope(ActionLog& log, const Action& action)
    : log_(log),
      activity_(name_of(action.operation), action.stage,
                is_computation(action.operation) ? action.microbatch : Activity::kNone),
      span_(name_of(action.operation),
            is_computation(action.operation)             ? "action"
            : action.operation == Operation::reduce_grad ? "reduction"
                                                         : "update",
            [&] { return action.stage < 0 ? std::string() : to_string(action); }),
      slot_(log.slot_of(action)),
      counts_(action.operation == Operation::reduce_grad ? 0 : 1),
      counts_stragglers_(is_computation(action.operation)),
      is_update_(action.operation == Operation::update),
      began_(worked()) {
  log_.is_timing_ = true;
  log_.before_.push_back(log_.comm_.clock().between(log_.ended_, log_.worked()));
  log_.after_[log_.last_] += log_.before_.back();
}

ActionLog::Scope::~Scope() {
  const Clock& clock = log_.comm_.clock();
  const double seconds = clock.between(began_, worked());
  if (is_update_) {
    log_.norm_work_ += std::max(clock.between(began_, clock.worked_before_norm()), 0.0);
  }
  log_.sums_[slot_].add(seconds, counts_);
  log_.seconds_.push_back(seconds);
  log_.last_ = slot_;
  log_.ended_ = log_.worked();
  log_.is_timing_ = false;
}

double ActionLog::Scope::worked() const {
  return log_.worked() + (counts_stragglers_ ? log_.comm_.clock().waited_for_stragglers() : 0);
}

}  // namespace stagecoach
