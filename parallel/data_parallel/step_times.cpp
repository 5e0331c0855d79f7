#include "parallel/data_parallel/step_times.h"

#include <algorithm>
#include <functional>

namespace stagecoach {

void StepTimes::begin_backward() {
  backward_ = now();
  step_.forward = end_part();
}

void StepTimes::end_backward() {
  backward_end_ = now();
  step_.backward = end_part();
}

void StepTimes::end_reductions(const std::vector<CommThread::Span>& spans) {
  for (const auto& [begin, end] : spans) {
    const Clock& clock = comm_->clock();
    reduction_seconds_ += clock.between(begin, end);
    hidden_seconds_ += std::max(0.0, clock.between(std::max(begin, backward_), std::min(end, backward_end_)));
  }
}

void StepTimes::end_step() {
  step_.update = end_part();
  ++steps_;
  sums_.forward += step_.forward;
  sums_.backward += step_.backward;
  sums_.update += step_.update;
  std::transform(sums_.arrivals.begin(), sums_.arrivals.end(), step_.arrivals.begin(), sums_.arrivals.begin(),
                 std::plus<>());
  if (comm_->clock().kind() == ClockKind::modelled) {
    each_.push_back(step_);
  }
  std::fill(step_.arrivals.begin(), step_.arrivals.end(), 0);
}

void StepTimes::clear() { *this = StepTimes(*comm_, sums_.arrivals.size()); }

StepCosts StepTimes::mean() const {
  std::vector<double> sums{steps_, sums_.forward, sums_.backward, reduction_seconds_, hidden_seconds_, sums_.update};
  sums.insert(sums.end(), sums_.arrivals.begin(), sums_.arrivals.end());
  sums = comm_->sum_numbers(sums);
  const double steps = std::max(sums[0], 1.0);
  double update = 0;  // nonzero only on the owner if one rank owns the weights
  for (const Tensor& each : comm_->all_gather(Tensor::from(std::vector{sums_.update}, {1}, comm_->device()))) {
    update = std::max(update, each.item());
  }
  StepCosts costs{.forward = sums[1] / steps,
                  .backward = sums[2] / steps,
                  .update = update / std::max(steps_, 1.0),
                  .update_share = update > 0 ? sums[5] / (update * comm_->size()) : 1,
                  .arrivals = {},
                  .overlap = sums[3] > 0 ? sums[4] / sums[3] : 0};
  for (std::size_t i = 6; i < sums.size(); ++i) {
    costs.arrivals.push_back(sums[i] / steps);
  }
  return costs;
}

}  // namespace stagecoach
