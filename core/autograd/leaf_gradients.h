#pragma once
/// @file
/// Adds gradients to leaves, at once or later. A floating-point sum depends on the order of its terms, so code that
/// needs a certain order holds back gradients that are computed too early.

#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Adds `gradient` to a leaf's gradient, in place if the leaf has one: other handles to that gradient see the sum.
void accumulate_leaf(Tensor gradient, Tensor leaf);

/// Returns the gradient of a leaf and clears it there.
Tensor take_gradient(Tensor leaf);

/// Gradients that a backward pass has computed but not added. They need the memory of one gradient per leaf.
class HeldGradients {
 public:
  /// Holds one term of a leaf's sum. `is_last` means that no other term of the same backward follows, so the leaf's
  /// hook is called when this one is added.
  void hold(Tensor gradient, Tensor leaf, bool is_last);
  /// Adds all held gradients, in the order in which they were held, and drops them.
  void add();
  bool empty() const { return terms_.empty(); }

 private:
  struct Term {
    Tensor gradient;
    Tensor leaf;
    bool is_last;
  };
  std::vector<Term> terms_;
};

}  // namespace stagecoach
