#pragma once
/// @file
/// Modules on workers that are called one after the other: what Sequential is on one device.

#include <cstddef>
#include <utility>
#include <vector>

#include "parallel/rpc/master.h"

namespace stagecoach {

class RemoteSequential {
 public:
  /// There must be at least one module. Consecutive ones may be on the same worker.
  explicit RemoteSequential(std::vector<RemoteModule> modules) : modules_(std::move(modules)) {}

  /// Calls all modules, and returns at once. Activations go from worker to worker.
  RRef forward(const Tensor& x) const {
    RRef y = modules_[0].forward(x);
    for (std::size_t i = 1; i < modules_.size(); ++i) {
      y = modules_[i].forward(y);
    }
    return y;
  }
  /// Switches all modules to training or to evaluation, for the calls from now on. Does not wait.
  void train(bool on = true) const {
    for (const RemoteModule& module : modules_) {
      module.train(on);
    }
  }
  /// As in RemoteModule, of all modules in turn.
  NamedRRefs named_parameters() const { return gather(&RemoteModule::named_parameters); }
  NamedRRefs named_buffers() const { return gather(&RemoteModule::named_buffers); }

 private:
  NamedRRefs gather(NamedRRefs (RemoteModule::*list)() const) const {
    NamedRRefs all;
    for (const RemoteModule& module : modules_) {
      const NamedRRefs tensors = (module.*list)();
      all.insert(all.end(), tensors.begin(), tensors.end());
    }
    return all;
  }

  std::vector<RemoteModule> modules_;
};

}  // namespace stagecoach
