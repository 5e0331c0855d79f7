#include "parallel/rpc/worker_contexts.h"

#include <algorithm>
#include <utility>

#include "core/autograd/backward.h"
#include "core/base/on_exit.h"

namespace stagecoach::rpc {
namespace {

/// Returns the leaves from which `output` was computed, except for the inputs.
std::vector<Tensor> parameters_of(const Tensor& output, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves{output};
  if (!output.is_leaf()) {
    leaves = reachable_leaves(leaves);
  }
  std::erase_if(leaves, [&](const Tensor& leaf) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const Tensor& input) { return input.defined() && input.is_same(leaf); });
  });
  return leaves;
}

}  // namespace

void WorkerContexts::note_error(Id context, const Value& value) {
  if (const auto* failure = std::get_if<Failure>(&value); failure != nullptr && context != 0) {
    std::string& first = contexts_[context].error;
    first = first.empty() ? failure->text : first;
  }
}

Value WorkerContexts::error(Id context) {
  const std::string& error = contexts_[context].error;
  return error.empty() ? Value() : Failure{error};
}

/// Runs `body` while the gradients of `parameters` are those of the context.
template <class Body>
void WorkerContexts::with_gradients(Context& context, std::vector<Tensor> parameters, const Body& body) {
  for (Tensor& parameter : parameters) {
    Gradient& gradient = context.gradients[parameter.id()];
    gradient.parameter = parameter;
    parameter.set_grad(gradient.sum);
  }
  const OnExit collect([&] {
    for (const Tensor& parameter : parameters) {  // allocates nothing: the context has an entry for each
      context.gradients.find(parameter.id())->second.sum = take_gradient(parameter);
    }
  });
  body();
}

void WorkerContexts::backward(Id context, Kept& of, const Tensor& gradient, std::vector<Tensor>& sums) {
  const Tensor output = tensor_in(of.value);
  if (!gradient.defined() || !output.defined() || !output.requires_grad()) {
    return;  // such as of a first call without parameters
  }
  std::vector<Tensor> inputs = std::exchange(of.inputs, {});
  inputs.resize(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (inputs[i].defined()) {
      inputs[i].set_grad(std::exchange(sums[i], {}));
    }
  }
  with_gradients(contexts_[context], parameters_of(output, inputs), [&] { stagecoach::backward(output, gradient); });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = inputs[i].defined() ? inputs[i].grad() : sums[i];
  }
  of.value = output.detach();  // the graph is used up
}

void WorkerContexts::step(Id context, Optimizer& optimizer) {
  Context none;  // of a worker that takes no part in the context: nothing is kept there, for nobody would end it
  const auto found = contexts_.find(context);
  Context& gradients = found == contexts_.end() ? none : found->second;
  if (!gradients.error.empty()) {
    throw Failed(gradients.error);
  }
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : optimizer.parameters()) {
    parameters.push_back(parameter);
  }
  with_gradients(gradients, std::move(parameters), [&] { optimizer.step(); });
}

}  // namespace stagecoach::rpc
