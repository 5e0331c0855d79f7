#include "parallel/advise/visit_in_order.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <tuple>

#include "core/base/error.h"
#include "parallel/advise/step_bound.h"

namespace stagecoach {

void visit_in_order_of_bounds(Evaluator& evaluator, const std::vector<Candidate>& candidates,
                              const std::function<bool(const Candidate&, double bound)>& is_worth,
                              const std::function<void(const Candidate&, double bound)>& visit) {
  const auto bound_or_zero = [](const auto& bound) {
    try {
      return bound();
    } catch (const UsageError&) {
      return 0.0;
    }
  };
  using Entry = std::tuple<double, bool, std::size_t>;  // bound, whether it is that of the split, index
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    open.emplace(bound_or_zero([&] { return least_seconds(evaluator.costs(candidates[i]), candidates[i]); }), false, i);
  }
  while (!open.empty()) {
    const auto [bound, is_of_split, index] = open.top();
    open.pop();
    const Candidate& candidate = candidates[index];
    if (!is_worth(candidate, bound)) {
      continue;
    }
    if (is_of_split) {
      visit(candidate, bound);
    } else {
      open.emplace(std::max(bound, bound_or_zero([&] { return evaluator.least_seconds(candidate); })), true, index);
    }
  }
}

}  // namespace stagecoach
