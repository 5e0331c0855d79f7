#pragma once
/// @file
/// Learning rates that change during a training, as functions of the step. So a resumed training goes on with the rate
/// that it would have had.

#include <cstdint>

namespace stagecoach {

enum class RateShape {
  constant,
  cosine,  ///< falls to 0 along half a cosine (Loshchilov and Hutter, "SGDR", 2017, without restarts)
  step,    ///< a tenth after each third of the steps
};

/// The factor by which the learning rate is multiplied: rises linearly over the first `warm_up` steps (Goyal and
/// others, "Accurate, large minibatch SGD", 2017, section 2.2), and then follows `shape` until step `steps`.
///
///   optimizer.set_learning_rate(rate * schedule.factor(step));
struct RateSchedule {
  RateShape shape = RateShape::constant;
  std::int64_t warm_up = 0;
  std::int64_t steps = 0;  ///< of the whole training; not used by `constant`

  bool is_constant() const { return shape == RateShape::constant && warm_up == 0; }
  /// Returns the factor for step `step`, from 0 on.
  double factor(std::int64_t step) const;
};

}  // namespace stagecoach
