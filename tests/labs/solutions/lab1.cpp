#include <cmath>
#include <memory>

#include "chapters/01_single_device/lab/accumulate.h"
#include "chapters/01_single_device/lab/scaled_tanh.h"
#include "core/autograd/backward.h"
#include "core/autograd/node.h"

namespace stagecoach::lab {
namespace {

class ScaledTanhNode final : public Node {
 public:
  ScaledTanhNode(const Tensor& x, const Tensor& scale) : Node("scaled_tanh", {x, scale}) {
    save("x", x);
    save("scale", scale);
  }

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Tensor x = saved("x");
    const Tensor scale = saved("scale");
    const std::int64_t rows = x.size(0);
    const std::int64_t columns = x.size(1);
    Gradients gradients(2);
    if (needs_input_grad[0]) {
      gradients[0] = Tensor::zeros(x.shape(), DType::float64);
    }
    if (needs_input_grad[1]) {
      gradients[1] = Tensor::zeros(scale.shape(), DType::float64);
    }
    double* grad_x = needs_input_grad[0] ? gradients[0].mutable_data<double>() : nullptr;
    double* grad_scale = needs_input_grad[1] ? gradients[1].mutable_data<double>() : nullptr;
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t i = n * columns + c;
        const double t = std::tanh(x.data<double>()[i]);
        if (grad_x != nullptr) {
          grad_x[i] = grad.data<double>()[i] * scale.data<double>()[c] * (1 - t * t);
        }
        if (grad_scale != nullptr) {
          grad_scale[c] += grad.data<double>()[i] * t;  // scale[c] is used in every row
        }
      }
    }
    return gradients;
  }
};

}  // namespace

Tensor scaled_tanh(const Tensor& x, const Tensor& scale) {
  Tensor y = Tensor::empty(x.shape(), DType::float64);
  double* values = y.mutable_data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = scale.data<double>()[i % scale.numel()] * std::tanh(x.data<double>()[i]);
  }
  return recorded<ScaledTanhNode>(y, {&x, &scale}, x, scale);
}

double accumulate(Module& model, const std::vector<Samples>& microbatches) {
  std::vector<Samples> parts;
  std::int64_t count = 0;
  for (const Samples& microbatch : microbatches) {
    parts.push_back(labelled(microbatch));
    count += parts.back().count();
  }
  double sum = 0;
  for (const Samples& part : parts) {
    if (part.count() > 0) {
      const Tensor loss = cross_entropy(model.forward(part.images), part.labels, Reduction::sum);
      backward(loss, Tensor::full({}, 1.0 / static_cast<double>(count), loss.dtype()));
      sum += loss.item();
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace stagecoach::lab
