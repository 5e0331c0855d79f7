#pragma once
/// @file
/// Modules on workers that are called one after the other: what Sequential is on one device.

#include <string>
#include <utility>
#include <vector>

#include "parallel/rpc/master.h"

namespace stagecoach {

class RemoteSequential {
 public:
  /// References to modules, at least one. Consecutive ones may be on the same worker.
  explicit RemoteSequential(std::vector<RRef> modules) : modules_(std::move(modules)) {}

  /// Calls all modules, and returns at once. Activations go from worker to worker.
  template <class Input>  // a Tensor or an RRef
  RRef forward(const Input& x) const {
    RRef y = modules_[0].remote("forward", x);
    for (std::size_t i = 1; i < modules_.size(); ++i) {
      y = modules_[i].remote("forward", y);
    }
    return y;
  }
  /// Switches all modules to training or to evaluation, for the calls from now on. Does not wait.
  void train(bool on = true) const {
    for (const RRef& module : modules_) {
      module.remote("train", on);
    }
  }
  /// Return references to the parameters of all modules in turn, in the order of Module::named_parameters(), and to the
  /// buffers. Wait for the workers. Throw as RRef::list does.
  NamedRRefs named_parameters() const { return gather("named_parameters"); }
  NamedRRefs named_buffers() const { return gather("named_buffers"); }

 private:
  NamedRRefs gather(const std::string& method) const {
    NamedRRefs all;
    for (const RRef& module : modules_) {
      const NamedRRefs tensors = module.list(method);
      all.insert(all.end(), tensors.begin(), tensors.end());
    }
    return all;
  }

  std::vector<RRef> modules_;
};

}  // namespace stagecoach
