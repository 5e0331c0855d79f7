#pragma once
/// @file
/// What can be made and called on another rank, by name. Ranks may be processes, so a function cannot be sent: each
/// rank of the program builds the same table, and a call sends only the name.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/make_optimizer.h"
#include "nn/module.h"

namespace stagecoach {

struct RemoteTable {
  using MakeModule = std::function<std::shared_ptr<Module>(Device device)>;
  using Function = std::function<Tensor(const std::vector<Tensor>& arguments)>;

  /// Return a new module with memory on the worker's device.
  std::map<std::string, MakeModule> modules = {};
  /// Return an optimizer of a worker's parameters.
  std::map<std::string, MakeOptimizer> optimizers = {};
  /// Run on a worker, with arguments on its device, and return a tensor there.
  std::map<std::string, Function> functions = {};
};

}  // namespace stagecoach
