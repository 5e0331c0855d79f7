#pragma once
/// @file
/// The distributed autograd contexts on a worker: gradients of its parameters, and the first error of each.

#include <map>
#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/rpc/kept_values.h"

namespace stagecoach::rpc {

class WorkerContexts {
 public:
  /// Notes `value` if it is an error, and the first one of the context. Context 0 is none.
  void note_error(Id context, const Value& value);
  /// Returns the first error, or nothing.
  Value error(Id context);

  /// Runs the backward of a value from its gradient, which may be undefined: then there is nothing to do. Adds the
  /// gradients of parameters to those of the context and those of the inputs to `sums`, one per input, in place.
  void backward(Id context, Kept& of, const Tensor& gradient, std::vector<Tensor>& sums);
  /// Makes a step with the gradients of a context. Throws Failed if the context has an error.
  void step(Id context, Optimizer& optimizer);

  void end(Id context) { contexts_.erase(context); }

 private:
  struct Gradient {
    Tensor parameter;
    Tensor sum;
  };
  struct Context {
    std::map<const void*, Gradient> gradients;  // by Tensor::id of the parameter
    std::string error;
  };
  template <class Body>
  static void with_gradients(Context& context, std::vector<Tensor> parameters, const Body& body);

  std::map<Id, Context> contexts_;
};

}  // namespace stagecoach::rpc
