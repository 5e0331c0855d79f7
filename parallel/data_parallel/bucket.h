#pragma once
/// @file
/// A bucket: gradients that are reduced together, one behind the other in one piece of memory. One message for many
/// small gradients waits for the link's latency once.

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

struct Bucket {
  int index = 0;
  Tensor flat = {};                     ///< [n]: all gradients, without gaps
  std::vector<std::string> names = {};  ///< of the parameters
  std::vector<Tensor> gradients = {};   ///< views of `flat`, each of its parameter's shape
};

/// What replaces a bucket's values by their sum over all ranks of `comm`, or by what stands for it. All ranks get the
/// same bytes. It runs on the thread of CommThread, not on the rank's own.
using ReduceBucket = std::function<void(Bucket& bucket, Communicator& comm)>;

}  // namespace stagecoach
