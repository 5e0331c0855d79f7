#pragma once
/// @file
/// Calculates when a rank computes and communicates in one step, from the costs of the step's parts and the link. The
/// result predicts the step's length, and can be drawn as a timeline.

#include <string>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/link.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/data_parallel/step_times.h"

namespace stagecoach {

/// The values that determine the length of a step.
struct StepModel {
  StepCosts costs;
  NamedTensors parameters;  ///< in the order of costs.arrivals
  BucketCaps caps;
  Link link;
  int ranks = 1;
  double compressed = 1;  ///< bytes sent per byte of a bucket, the same for all buckets
};

struct Bar {
  std::string name;
  enum class Kind { compute, communication, update } kind = Kind::compute;
  double begin = 0;  ///< seconds since the step began
  double end = 0;
  double ranks = 1;  ///< the share of the ranks that do this
};

struct Timeline {
  std::vector<Bar> bars;  ///< communication on a track of its own
  double seconds = 0;     ///< the whole step

  /// Returns the seconds in which all ranks wait for communication.
  double waiting() const;
  /// Returns the share of the step in which a rank waits.
  double idle() const;
  /// Returns the share of the communication that runs during the backward.
  double overlap() const;
};

/// The modes of data parallelism, in the order of chapter 6.
enum class DataParallelMode { single, parameter, buckets, central };

/// Returns the timeline of one step.
Timeline timeline_of(DataParallelMode mode, const StepModel& step);

}  // namespace stagecoach
