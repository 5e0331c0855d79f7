#include "nn/tied_weights.h"

#include <algorithm>

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"

namespace stagecoach {
namespace {

Tensor tied_parameter(const NamedTensors& parameters, const std::string& name) {
  const Tensor found = find_tensor(parameters, name);
  throw_if<UsageError>(!found.defined(),
                       "tied weights: expected the name of a parameter, got '{}'; named_parameters() lists them", name);
  return found;
}

}  // namespace

TiedWeights::TiedWeights(const NamedTensors& parameters, const Names& names) {
  for (const auto& [first_name, copy_name] : names) {
    const Pair pair{tied_parameter(parameters, first_name), tied_parameter(parameters, copy_name)};
    throw_if<UsageError>(pair.first.shape() != pair.copy.shape() || pair.first.is_same(pair.copy),
                         "tied weights: expected two parameters of one shape, got '{}' {} and '{}' {}", first_name,
                         describe(pair.first), copy_name, describe(pair.copy));
    const auto overlaps = [&](const Pair& other) {
      return other.copy.is_same(pair.copy) || other.copy.is_same(pair.first) || other.first.is_same(pair.copy);
    };
    throw_if<UsageError>(
        std::any_of(pairs_.begin(), pairs_.end(), overlaps),
        "tied weights: '{}' or '{}' is in another pair already; name one first parameter for all copies", first_name,
        copy_name);
    pairs_.push_back(pair);
  }
  copy_values();
}

NamedTensors TiedWeights::without_copies(NamedTensors parameters) const {
  std::erase_if(parameters, [&](const auto& named) {
    return std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& pair) { return pair.copy.is_same(named.second); });
  });
  return parameters;
}

NamedTensors without_copies(NamedTensors parameters, const TiedWeights::Names& names) {
  for (const auto& pair : names) {
    std::erase_if(parameters, [&](const auto& named) { return named.first == pair.second; });
  }
  return parameters;
}

void TiedWeights::sum_gradients() {
  const NoGrad no_grad;
  for (Pair& pair : pairs_) {
    if (!pair.copy.grad().defined()) {
      continue;
    }
    const Tensor of_copy = pair.copy.grad().to(pair.first.device());
    pair.first.set_grad(pair.first.grad().defined() ? add(pair.first.grad(), of_copy) : of_copy);
    pair.copy.zero_grad();
  }
}

void TiedWeights::copy_values() {
  const NoGrad no_grad;
  for (Pair& pair : pairs_) {
    pair.copy.copy_from(pair.first);
  }
}

void tie(Optimizer& optimizer, TiedWeights tied) {
  optimizer.tie([tied]() mutable { tied.sum_gradients(); }, [tied]() mutable { tied.copy_values(); });
}

}  // namespace stagecoach
