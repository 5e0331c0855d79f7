#include "core/autograd/leaf_gradients.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

void accumulate_leaf(Tensor gradient, Tensor leaf) {
  Tensor sum = leaf.grad();
  if (sum.defined()) {
    kernels(sum.device()).add_scaled(gradient, 1, sum);
  } else {
    leaf.set_grad(gradient.is_donatable() ? gradient : gradient.clone());
  }
}

Tensor take_gradient(Tensor leaf) {
  const Tensor gradient = leaf.grad();
  leaf.zero_grad();
  return gradient;
}

void HeldGradients::hold(Tensor gradient, Tensor leaf, bool is_last) {
  terms_.push_back({std::move(gradient), std::move(leaf), is_last});
}

void HeldGradients::add() {
  const NoGrad no_grad;
  for (Term& term : std::exchange(terms_, {})) {
    accumulate_leaf(std::move(term.gradient), term.leaf);
    if (term.is_last && term.leaf.gradient_hook()) {
      term.leaf.gradient_hook()(term.leaf);
    }
  }
}

}  // namespace stagecoach
