#include "parallel/advise/pareto.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "parallel/advise/visit_in_order.h"

namespace stagecoach {
namespace {

/// The plans that no other one beats, the fastest first.
class Front {
 public:
  /// Returns the seconds of the fastest plan that needs no more than `bytes`; infinity if there is none.
  double seconds_within(double bytes) const {
    const auto found = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const Evaluated& plan) { return kRounding * plan.worst().total() <= bytes; });
    return found == plans_.end() ? std::numeric_limits<double>::infinity() : found->seconds;
  }

  /// Returns whether a plan is no worse in both.
  bool beats(double seconds, double bytes) const { return kRounding * seconds_within(bytes) <= seconds; }

  void add(Evaluated plan) {
    if (beats(plan.seconds, plan.worst().total())) {
      return;
    }
    std::erase_if(plans_, [&](const Evaluated& other) {
      return kRounding * plan.seconds <= other.seconds && plan.worst().total() <= other.worst().total();
    });
    const auto place = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const Evaluated& other) { return plan.seconds < other.seconds; });
    plans_.insert(place, std::move(plan));
  }

  const std::vector<Evaluated>& plans() const { return plans_; }

 private:
  static constexpr double kRounding = 1 - 1e-12;

  std::vector<Evaluated> plans_;
};

}  // namespace

std::vector<Evaluated> pareto(const AdviceRequest& request, std::vector<Evaluated> known, Prune prune) {
  Front front;
  for (Evaluated& plan : known) {
    front.add(std::move(plan));
  }
  Evaluator evaluator(request);
  const double limit = request.memory_limit > 0 ? request.memory_limit : std::numeric_limits<double>::infinity();
  const bool prunes = prune == Prune::yes;
  const auto is_worth = [&](double seconds, double bytes) {
    return bytes <= limit && !(prunes && front.beats(seconds, bytes));
  };
  const auto may_be_worth = [&](const Candidate& candidate, double bound) {
    try {
      return is_worth(bound,
                      least_bytes(evaluator.costs(candidate), candidate, request.optimizer_bytes_per_weight_byte));
    } catch (const UsageError&) {
      return false;
    }
  };
  const auto visit = [&](const Candidate& candidate, double bound) {
    try {
      Evaluated plan = evaluator.memory(candidate);
      if (const double bytes = plan.worst().total(); is_worth(bound, bytes)) {
        evaluator.add_times(plan, prunes ? front.seconds_within(bytes) : std::numeric_limits<double>::infinity());
        front.add(std::move(plan));
      }
    } catch (const UsageError&) {  // not possible
    }
  };
  visit_in_order_of_bounds(evaluator, candidates_of(request), may_be_worth, visit);
  for (Evaluated& plan : std::vector(front.plans())) {
    evaluator.move_layers(plan);
    front.add(std::move(plan));
  }
  return front.plans();
}

}  // namespace stagecoach
