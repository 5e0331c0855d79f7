#pragma once
/// @file
/// The order in which a pipelined forward is given to the devices.

#include <vector>

namespace stagecoach {

/// The forward of a micro-batch on a stage.
struct StageForward {
  int stage;
  int microbatch;
};

/// Returns the number of clock ticks of a pipelined forward.
inline int tick_count(int stages, int microbatches) { return microbatches + stages - 1; }

/// Returns the share of the ticks in which a stage has nothing to do, if all stages take equally long: with one
/// micro-batch, the naive form, all but one wait at any time.
inline double ideal_idle_share(int stages, int microbatches) {
  return static_cast<double>(stages - 1) / tick_count(stages, microbatches);
}

/// Returns the forwards of one clock tick, the deepest stage first: micro-batch i is in stage s at tick i + s. None
/// needs the result of another of the same tick. Source: Kim et al., "torchgpipe", 2020, section 3.2.1 (deterministic
/// clock-cycle).
inline std::vector<StageForward> forwards_of_tick(int tick, int stages, int microbatches) {
  std::vector<StageForward> forwards;
  for (int stage = stages - 1; stage >= 0; --stage) {
    if (const int i = tick - stage; i >= 0 && i < microbatches) {
      forwards.push_back({stage, i});
    }
  }
  return forwards;
}

}  // namespace stagecoach
