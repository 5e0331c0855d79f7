#pragma once
/// @file
/// How gradients get into leaves: at once, or later. A sum in floating point depends on the order of its terms, so
/// whoever wants a certain order holds back what comes too early.

#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Adds to a leaf's gradient, in place from the second time on: other handles on it see the sum.
void accumulate_leaf(Tensor gradient, Tensor leaf);

/// Gradients that a backward pass has computed and not added. They take the memory of one gradient of each leaf.
class HeldGradients {
 public:
  /// Holds one term of a leaf's sum. `is_last`: no other one of the same backward follows, so that the leaf's hook is
  /// called when this one is added.
  void hold(Tensor gradient, Tensor leaf, bool is_last);
  /// Adds all of them, in the order in which they were held, and drops them.
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
