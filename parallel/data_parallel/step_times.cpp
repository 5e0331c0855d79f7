#include "parallel/data_parallel/step_times.h"

#include <algorithm>

namespace stagecoach {

void StepTimes::begin_backward() {
  backward_ = now();
  forward_seconds_ += end_part();
}

void StepTimes::end_backward() {
  backward_end_ = now();
  backward_seconds_ += end_part();
}

void StepTimes::end_reductions(const std::vector<CommThread::Span>& spans) {
  for (const auto& [begin, end] : spans) {
    const Clock& clock = comm_->clock();
    reduction_seconds_ += clock.between(begin, end);
    hidden_seconds_ += std::max(0.0, clock.between(std::max(begin, backward_), std::min(end, backward_end_)));
  }
}

void StepTimes::end_step() {
  update_seconds_ += end_part();
  ++steps_;
}

void StepTimes::clear() { *this = StepTimes(*comm_, arrivals_.size()); }

StepCosts StepTimes::mean() const {
  std::vector<double> sums{steps_, forward_seconds_, backward_seconds_, reduction_seconds_, hidden_seconds_};
  sums.insert(sums.end(), arrivals_.begin(), arrivals_.end());
  sums = comm_->sum_numbers(sums);
  const double steps = std::max(sums[0], 1.0);
  double update = 0;  // nonzero only on the owner if one rank owns the weights
  for (const Tensor& each : comm_->all_gather(Tensor::from(std::vector{update_seconds_}, {1}, comm_->device()))) {
    update = std::max(update, each.item());
  }
  StepCosts costs{.forward = sums[1] / steps,
                  .backward = sums[2] / steps,
                  .update = update / std::max(steps_, 1.0),
                  .arrivals = {},
                  .overlap = sums[3] > 0 ? sums[4] / sums[3] : 0};
  for (std::size_t i = 5; i < sums.size(); ++i) {
    costs.arrivals.push_back(sums[i] / steps);
  }
  return costs;
}

}  // namespace stagecoach
