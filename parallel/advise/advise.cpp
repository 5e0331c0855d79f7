#include "parallel/advise/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "core/base/throw_if.h"
#include "core/base/units.h"
#include "parallel/advise/visit_in_order.h"

namespace stagecoach {
namespace {

bool are_alike(const Candidate& a, const Candidate& b) {
  return a.schedule == b.schedule && a.mesh.data == b.mesh.data && a.mesh.pipeline == b.mesh.pipeline &&
         a.mesh.tensor == b.mesh.tensor;
}

/// Returns whether `a` is the better plan. Ties are broken by memory, then by the order of the candidates.
bool is_better(const Evaluated& a, const Evaluated& b) {
  constexpr double kRounding = 1 - 1e-12;
  if (a.seconds < b.seconds * kRounding || b.seconds < a.seconds * kRounding) {
    return a.seconds < b.seconds;
  }
  return a.worst().total() < b.worst().total() * kRounding;
}

/// Returns "" for ranks without a pipeline, whose schedule does not matter.
std::string schedule_of(const Candidate& candidate) { return candidate.mesh.pipeline > 1 ? candidate.schedule : ""; }

/// The plans kept beyond those that are asked for.
constexpr std::size_t kSpare = 6;

class Search {
 public:
  Search(const AdviceRequest& request, int count, Prune prune)
      : request_(request),
        count_(static_cast<std::size_t>(count)),
        kept_(count_ + kSpare),
        prune_(prune),
        evaluator_(request) {}

  Advice run() {
    const std::vector<Candidate> all = candidates_of(request_);
    advice_.candidates = static_cast<int>(all.size());
    visit_in_order_of_bounds(
        evaluator_, all, [this](const Candidate& candidate, double bound) { return is_worth(candidate, bound); },
        [this](const Candidate& candidate, double) { evaluate(candidate); });
    advice_.rejected.insert(advice_.rejected.end(), impossible_.begin(), impossible_.end());
    require_any();
    move_layers();
    add_one_device();
    return std::move(advice_);
  }

 private:
  void reject(const Candidate& candidate, std::string reason, double seconds = 0) {
    advice_.rejected.push_back({candidate, seconds, std::move(reason)});
  }

  void reject_slower(const Evaluated& slow) {
    reject(slow.candidate, fmt::format("takes {:.3f} ms", 1e3 * slow.seconds), slow.seconds);
  }

  /// Returns whether a candidate with this bound can be among the answers; rejects it if not.
  bool is_worth(const Candidate& candidate, double bound) try {
    if (const auto reason = why_slower(candidate, bound)) {
      reject(candidate, *reason);
      return false;
    }
    const double least = least_bytes(evaluator_.costs(candidate), candidate, request_.optimizer_bytes_per_weight_byte);
    if (request_.memory_limit > 0 && least > request_.memory_limit) {
      ++advice_.too_large;
      if (too_large_.empty() || least <= too_large_.front().first) {
        too_large_.insert(too_large_.begin(), {least, candidate});
      }
      reject(candidate, fmt::format("a rank needs at least {} for weights, gradients and the optimizer's state, the "
                                    "limit is {}",
                                    bytes_text(least), bytes_text(request_.memory_limit)));
      return false;
    }
    return true;
  } catch (const UsageError& error) {
    impossible_.push_back({candidate, 0, error.what()});
    return false;
  }

  /// Returns the plan that a candidate must beat to be among the answers; nullptr if it is in any case, or if it is the
  /// first of its schedule, whose numbers are the reason why that is not among them.
  const Evaluated* rival(const Candidate& candidate) const {
    if (prune_ == Prune::no || !seen_.contains(schedule_of(candidate))) {
      return nullptr;
    }
    for (std::size_t i = 0; i < advice_.best.size(); ++i) {
      if (i + 1 == kept_ || are_alike(advice_.best[i].candidate, candidate)) {
        return &advice_.best[i];
      }
    }
    return nullptr;
  }

  /// Returns why a candidate with this bound is not among the answers, whatever its time.
  std::optional<std::string> why_slower(const Candidate& candidate, double bound) const {
    const Evaluated* const other = rival(candidate);
    if (other == nullptr || other->seconds >= bound) {
      return std::nullopt;
    }
    return fmt::format("takes at least {:.3f} ms, {} takes {:.3f} ms", 1e3 * bound, to_string(other->candidate),
                       1e3 * other->seconds);
  }

  /// Improves the splits of the best plans and of some after them, which then may overtake.
  void move_layers() {
    auto& best = advice_.best;
    std::for_each(best.begin(), best.end(), [this](Evaluated& plan) { evaluator_.move_layers(plan); });
    std::stable_sort(best.begin(), best.end(), is_better);
    for (; best.size() > count_; best.pop_back()) {
      reject_slower(best.back());
    }
  }

  void evaluate(const Candidate& candidate) try {
    const Evaluated* const other = rival(candidate);
    Evaluated evaluated = evaluator_.memory(candidate);
    seen_.insert(schedule_of(candidate));
    const double needed = evaluated.worst().total();
    if (request_.memory_limit > 0 && needed > request_.memory_limit) {
      ++advice_.too_large;
      note_nearest(evaluated);
      return reject(candidate,
                    fmt::format("rank {} needs {}, the limit is {}", &evaluated.worst() - evaluated.memory.data(),
                                bytes_text(needed), bytes_text(request_.memory_limit)));
    }
    evaluator_.add_times(evaluated, other == nullptr ? std::numeric_limits<double>::infinity() : other->seconds);
    ++advice_.simulated;
    keep(std::move(evaluated));
  } catch (const UsageError& error) {
    impossible_.push_back({candidate, 0, error.what()});
  }

  /// Inserts a plan among the best, one per schedule and mesh.
  void keep(Evaluated evaluated) {
    auto& best = advice_.best;
    const auto alike = std::find_if(best.begin(), best.end(), [&](const Evaluated& other) {
      return are_alike(other.candidate, evaluated.candidate);
    });
    if (alike != best.end()) {
      if (!is_better(evaluated, *alike)) {
        return reject_slower(evaluated);
      }
      reject_slower(*alike);
      best.erase(alike);
    }
    best.insert(std::upper_bound(best.begin(), best.end(), evaluated, is_better), std::move(evaluated));
    if (best.size() > kept_) {
      reject_slower(best.back());
      best.pop_back();
    }
  }

  /// Sets the nearest plan where all are too large, even for what they hold at least.
  void find_nearest() {
    for (const auto& [least, candidate] : too_large_) {
      if (least > too_large_.front().first) {
        break;
      }
      try {
        note_nearest(evaluator_.memory(candidate));
      } catch (const UsageError&) {  // a schedule that does not accept these sizes
      }
    }
  }

  void note_nearest(Evaluated evaluated) {
    if (!nearest_ || evaluated.worst().total() < nearest_->worst().total()) {
      nearest_ = std::move(evaluated);
    }
  }

  void require_any() {
    if (!advice_.best.empty()) {
      return;
    }
    if (!nearest_) {
      find_nearest();
    }
    throw_if<UsageError>(!nearest_ && !advice_.rejected.empty(), "no plan is possible: {}: {}",
                         to_string(advice_.rejected.front().candidate), advice_.rejected.front().reason);
    throw UsageError(fmt::format("no plan fits into {} per rank: the nearest needs {}: {}",
                                 bytes_text(request_.memory_limit), bytes_text(nearest_->worst().total()),
                                 to_string(nearest_->candidate)));
  }

  void add_one_device() {
    AdviceRequest alone = request_;
    alone.ranks = 1;
    alone.data = alone.pipeline = alone.tensor = alone.microbatches = std::nullopt;  // they are for all ranks
    alone.recompute = false;
    for (const Candidate& candidate : candidates_of(alone)) {
      try {
        Evaluated one = evaluator_.memory(candidate);
        evaluator_.add_times(one);
        if (advice_.one_device.seconds == 0 || is_better(one, advice_.one_device)) {
          advice_.one_device = std::move(one);
        }
      } catch (const UsageError&) {  // without costs there is nothing to compare with
      }
    }
  }

  const AdviceRequest& request_;
  std::size_t count_;
  std::size_t kept_;  // while candidates are visited
  Prune prune_;
  Evaluator evaluator_;
  std::set<std::string> seen_;                           // schedule_of() candidates that were evaluated
  std::vector<Rejected> impossible_;                     // the last of all that are rejected
  std::vector<std::pair<double, Candidate>> too_large_;  // by their least bytes, the smallest first
  std::optional<Evaluated> nearest_;                     // of those that exceed the limit
  Advice advice_;
};

}  // namespace

std::string bytes_text(double bytes) {
  return bytes < 1024 * kMiB ? fmt::format("{:.1f} MiB", bytes / kMiB) : fmt::format("{:.1f} GiB", bytes / kMiB / 1024);
}

Advice advise(const AdviceRequest& request, int count, Prune prune) { return Search(request, count, prune).run(); }

}  // namespace stagecoach
