#include "parallel/pipeline/action_log.h"

#include <algorithm>

namespace stagecoach {
namespace {

constexpr std::size_t kComputations = 4;  // forward, backward and its two parts; updates are counted by rank

}  // namespace

ActionLog::ActionLog(Communicator& comm, int stages)
    : comm_(comm),
      stages_(stages),
      sums_(static_cast<std::size_t>(stages) * kComputations + static_cast<std::size_t>(comm.size())) {}

std::size_t ActionLog::slot_of(const Action& action) const {
  if (!is_computation(action.operation)) {
    return static_cast<std::size_t>(stages_) * kComputations + static_cast<std::size_t>(comm_.rank());
  }
  return static_cast<std::size_t>(action.stage) * kComputations + static_cast<std::size_t>(action.operation);
}

ActionSeconds ActionLog::seconds() const {
  std::vector<double> counts(static_cast<std::size_t>(comm_.size()));
  counts[static_cast<std::size_t>(comm_.rank())] = static_cast<double>(seconds_.size());
  ActionSeconds all;
  std::vector<double> flat;  // of all ranks, one after the other; on each rank only its own values are not 0
  for (const double length : comm_.sum_numbers(counts)) {
    const bool mine = static_cast<int>(all.size()) == comm_.rank();
    all.emplace_back(static_cast<std::size_t>(length));
    flat.insert(flat.end(), mine ? seconds_.begin() : all.back().begin(), mine ? seconds_.end() : all.back().end());
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
  seconds_.clear();
}

Costs ActionLog::mean_costs() const {
  std::vector<double> flat;
  for (const Sum& sum : sums_) {
    flat.insert(flat.end(), {sum.total, sum.count});
  }
  flat = comm_.sum_numbers(flat);
  const auto mean = [&](std::size_t slot) { return flat[2 * slot] / std::max(flat[2 * slot + 1], 1.0); };

  const auto stages = static_cast<std::size_t>(stages_);
  Costs costs;
  std::size_t slot = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    for (auto* of_operation : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weight}) {
      of_operation->push_back(mean(slot++));
    }
  }
  costs.message.assign(stages - 1, 0);
  while (slot < sums_.size()) {
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
      sum_(log.sums_[log.slot_of(action)]),
      counts_(action.operation == Operation::reduce_grad ? 0 : 1),
      counts_stragglers_(is_computation(action.operation)),
      began_(worked()) {
  log_.is_timing_ = true;
}

double ActionLog::Scope::worked() const {
  Clock& clock = log_.comm_.clock();
  return clock.now() - clock.waited() + (counts_stragglers_ ? clock.waited_for_stragglers() : 0);
}

}  // namespace stagecoach
