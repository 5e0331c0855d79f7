#pragma once
/// @file
/// When a rank computes and when its messages travel in one step, by arithmetic: from what the parts of a step cost and
/// from the link. It says how long a step should take, and is drawn.

#include <string>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/link.h"
#include "parallel/data_parallel/bucket_layout.h"
#include "parallel/data_parallel/step_times.h"

namespace stagecoach {

/// One step, as the arithmetic sees it.
struct StepModel {
  StepCosts costs;
  NamedTensors parameters;  ///< in the order of costs.arrivals
  BucketCaps caps;
  Link link;
  int ranks = 1;
  double compressed = 1;     ///< bytes that travel for each byte of a bucket, where that is the same for all
  double picture_bytes = 0;  ///< of a rank's part of the batch
  double score_bytes = 0;    ///< likewise
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

  /// The share of the step in which a rank waits.
  double idle() const;
  /// The share of the communication that lies within backwards.
  double overlap() const;
};

/// How ranks share batches, in the order in which the chapter teaches it.
enum class DataParallelMode { single, parameter, buckets, central, replicate };

/// Their names, in this order.
const std::vector<std::string>& mode_names();

Timeline timeline_of(DataParallelMode mode, const StepModel& step);

}  // namespace stagecoach
