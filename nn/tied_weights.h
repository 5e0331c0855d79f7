#pragma once
/// @file
/// Parameters that are the same: such as the embedding of tokens and the weight of a language model's head. Source:
/// Press and Wolf, "Using the output embedding to improve language models", 2017.

#include <string>
#include <utility>
#include <vector>

#include "nn/named_tensors.h"
#include "nn/optimizer.h"

namespace stagecoach {

/// Pairs of parameters, a first one and its copy. Each has memory of its own, as they may be on two ranks. An optimizer
/// updates the first ones; before its step each gets the sum of both gradients, and after it the copy gets the new
/// value:
///
///     TiedWeights tied(model.named_parameters(), {{"embedding.weight", "head.weight"}});
///     Sgd optimizer(tied.without_copies(model.named_parameters()));
///     …  // forward, backward
///     tied.sum_gradients();
///     optimizer.step();
///     tied.copy_values();
///
/// or, once, tie(optimizer, tied): its steps then do all three. So the gradient is (sum of the first's) + (sum of the
/// copy's) wherever the parameters are: parallel/pipeline/tied_ranks.h is for pairs of which each is on a rank of its
/// own.
class TiedWeights {
 public:
  /// The names of the first parameter and of its copy.
  using Names = std::vector<std::pair<std::string, std::string>>;

  TiedWeights() = default;
  /// Copies the values of the first ones. Throws UsageError unless both are among `parameters`, with the same shape,
  /// and no parameter is a copy twice, or a copy and a first one.
  TiedWeights(const NamedTensors& parameters, const Names& names);

  /// Returns `parameters` without the copies.
  NamedTensors without_copies(NamedTensors parameters) const;
  /// Adds to the gradients of the first ones those of the copies, which are cleared.
  void sum_gradients();
  /// Copies the values of the first ones to the copies.
  void copy_values();

 private:
  struct Pair {
    Tensor first;
    Tensor copy;
  };
  std::vector<Pair> pairs_;
};

/// Returns `parameters` without the copies of these names, whether or not their first ones are there.
NamedTensors without_copies(NamedTensors parameters, const TiedWeights::Names& names);

/// Has each step of `optimizer` begin with sum_gradients and end with copy_values.
void tie(Optimizer& optimizer, TiedWeights tied);

}  // namespace stagecoach
