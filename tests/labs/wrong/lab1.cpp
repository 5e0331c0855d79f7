#include "tests/labs/wrong/lab1.h"

#include <cmath>
#include <memory>

#include "chapters/01_single_device/lab/accumulate.h"
#include "chapters/01_single_device/lab/scaled_tanh.h"
#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "core/ops.h"

namespace stagecoach::labs::lab1 {
namespace {

using lab::Samples;

// Wrong operations.

struct OperationMistakes {
  bool scale_inside = false;          ///< tanh(scale * x)
  bool first_power = false;           ///< 1 - tanh instead of 1 - tanh^2
  bool forgets_scale = false;         ///< in the gradient of x
  bool uses_output = false;           ///< takes y for tanh(x) in the gradient of x
  bool mean_over_rows = false;        ///< in the gradient of scale, instead of the sum
  bool last_row = false;              ///< the gradient of scale is overwritten by each row
  bool input_for_tanh = false;        ///< x instead of tanh(x) in the gradient of scale
  bool computes_both = false;         ///< whatever is needed
  bool writes_to_upstream = false;    ///< computes the gradient of x in place
  bool always_records = false;        ///< also without gradients
  bool records_for_x_only = false;    ///< not where only scale needs a gradient
  bool swaps_inputs = false;          ///< of the node
  bool divides_by_scale = false;      ///< tanh(x) is y / scale
  bool keeps_without_saving = false;  ///< as members of the node
  bool saves_a_copy = false;          ///< of x, beside x itself
  const char* name = "scaled_tanh";   ///< of the node
};

class WrongNode final : public Node {
 public:
  WrongNode(const Tensor& x, const Tensor& scale, const OperationMistakes& wrong)
      : Node(wrong.name, wrong.swaps_inputs ? std::vector{scale, x} : std::vector{x, scale}), wrong_(wrong) {
    if (wrong.keeps_without_saving) {
      x_ = x.detach();
      scale_ = scale.detach();
    } else {
      save("x", x);
      save("scale", scale);
    }
    if (wrong.saves_a_copy) {
      save("copy", x.clone());
    }
  }

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Tensor x = wrong_.keeps_without_saving ? x_ : saved("x");
    const Tensor scale = wrong_.keeps_without_saving ? scale_ : saved("scale");
    Gradients gradients(2);
    if (needs_input_grad[0] || wrong_.computes_both) {
      gradients[0] = gradient_of_x(grad, x, scale);
    }
    if (needs_input_grad[1] || wrong_.computes_both) {
      gradients[1] = gradient_of_scale(grad, x, scale);
    }
    return gradients;
  }

 private:
  Tensor gradient_of_x(const Tensor& grad, const Tensor& x, const Tensor& scale) const {
    Tensor result = wrong_.writes_to_upstream ? grad : Tensor::empty(x.shape(), DType::float64);
    double* values = result.mutable_data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double factor = scale.data<double>()[i % scale.numel()];
      const double t = std::tanh(x.data<double>()[i]) * (wrong_.uses_output ? factor : 1) /
                       (wrong_.divides_by_scale ? factor / factor : 1);
      const double slope = 1 - (wrong_.first_power ? t : t * t);
      values[i] = grad.data<double>()[i] * slope * (wrong_.forgets_scale ? 1 : factor);
    }
    return result;
  }

  Tensor gradient_of_scale(const Tensor& grad, const Tensor& x, const Tensor& scale) const {
    Tensor result = Tensor::zeros(scale.shape(), DType::float64);
    double* sums = result.mutable_data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double input = x.data<double>()[i];
      const double term = grad.data<double>()[i] * (wrong_.input_for_tanh ? input : std::tanh(input));
      double& sum = sums[i % scale.numel()];
      sum = wrong_.last_row ? term : sum + term / static_cast<double>(wrong_.mean_over_rows ? x.size(0) : 1);
    }
    return result;
  }

  OperationMistakes wrong_;
  Tensor x_;
  Tensor scale_;
};

Tensor wrong_scaled_tanh(const Tensor& x, const Tensor& scale, const OperationMistakes& wrong) {
  Tensor y = Tensor::empty(x.shape(), DType::float64);
  double* values = y.mutable_data<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double factor = scale.data<double>()[i % scale.numel()];
    const double input = x.data<double>()[i];
    values[i] = wrong.scale_inside ? std::tanh(factor * input) : factor * std::tanh(input);
  }
  if (wrong.always_records || should_record({&x, wrong.records_for_x_only ? &x : &scale})) {
    y.set_grad_node(std::make_shared<WrongNode>(x, scale, wrong));
  }
  return y;
}

// Wrong accumulations.

using Batch = std::vector<Samples>;

std::int64_t labelled_count(const Batch& batch) {
  std::int64_t count = 0;
  for (const Samples& part : batch) {
    count += labelled(part).count();
  }
  return count;
}

/// Runs each micro-batch with labels; `weight` is what its backward begins with, and the weight of its loss.
template <class Weight>
double run_parts(Module& model, const Batch& batch, Reduction reduction, const Weight& weight) {
  double sum = 0;
  for (const Samples& all : batch) {
    const Samples part = labelled(all);
    if (part.count() > 0) {
      const Tensor loss = cross_entropy(model.forward(part.images), part.labels, reduction);
      backward(loss, Tensor::full({}, weight(all), loss.dtype()));
      sum += loss.item() * weight(all);
    }
  }
  return sum;
}

double mean_of_means(Module& model, const Batch& batch) {
  std::size_t parts = 0;
  for (const Samples& part : batch) {
    parts += labelled(part).count() > 0 ? 1 : 0;
  }
  return run_parts(model, batch, Reduction::mean, [&](const Samples&) { return 1 / static_cast<double>(parts); });
}

double sum_of_losses(Module& model, const Batch& batch) {
  return run_parts(model, batch, Reduction::sum, [](const Samples&) { return 1; });
}

double counts_all_samples(Module& model, const Batch& batch) {
  std::int64_t count = 0;
  for (const Samples& part : batch) {
    count += part.count();
  }
  return run_parts(model, batch, Reduction::sum, [&](const Samples&) { return 1 / static_cast<double>(count); });
}

double weighs_by_size(Module& model, const Batch& batch) {
  double all = 0;
  for (const Samples& part : batch) {
    all += static_cast<double>(part.count());
  }
  return run_parts(model, batch, Reduction::mean,
                   [&](const Samples& part) { return static_cast<double>(part.count()) / all; });
}

double mean_of_nothing(Module& model, const Batch& batch) {
  const double count = static_cast<double>(labelled_count(batch));
  double sum = 0;
  for (const Samples& all : batch) {
    const Samples part = labelled(all);
    const double share = static_cast<double>(part.count()) / count;
    const Tensor loss = cross_entropy(model.forward(part.images), part.labels, Reduction::mean);
    backward(loss, Tensor::full({}, share, loss.dtype()));
    sum += loss.item() * share;
  }
  return sum;
}

double wipes_gradients(Module& model, const Batch& batch) {
  for (auto& [name, parameter] : model.named_parameters()) {
    parameter.set_grad({});
  }
  return lab::accumulate(model, batch);
}

double one_backward_at_the_end(Module& model, const Batch& batch) {
  Tensor sum;
  for (const Samples& all : batch) {
    const Samples part = labelled(all);
    if (part.count() > 0) {
      const Tensor loss = cross_entropy(model.forward(part.images), part.labels, Reduction::sum);
      sum = sum.defined() ? add(sum, loss) : loss;
    }
  }
  if (!sum.defined()) {
    return 0;
  }
  const Tensor mean = scale(sum, 1.0 / static_cast<double>(labelled_count(batch)));
  backward(mean);
  return mean.item();
}

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  std::vector<WrongAnswer<Answer>> answers;
  const auto operation = [&](const char* name, const char* mistake, const char* criterion,
                             const OperationMistakes& wrong) {
    const auto scaled_tanh = [wrong](const Tensor& x, const Tensor& scale) {
      return wrong_scaled_tanh(x, scale, wrong);
    };
    answers.push_back({name, mistake, criterion, {scaled_tanh, lab::accumulate}});
  };
  using Accumulate = double (*)(Module&, const Batch&);
  const auto accumulation = [&](const char* name, const char* mistake, const char* criterion, Accumulate accumulate) {
    answers.push_back({name, mistake, criterion, {lab::scaled_tanh, accumulate}});
  };
  const char* const gradient_of_x = "the gradient of x equals finite differences";
  const char* const gradient_of_scale = "the gradient of scale equals finite differences";
  const char* const needed = "only what is needed is recorded and computed";
  const char* const uneven = "uneven micro-batches give the gradient of the whole batch";
  operation("scale_inside", "The forward computes tanh(scale * x).", "scaled_tanh computes its values",
            {.scale_inside = true});
  operation("first_power", "The derivative of tanh is taken to be 1 - tanh(x).", gradient_of_x, {.first_power = true});
  operation("forgets_scale", "The gradient of x lacks the factor scale.", gradient_of_x, {.forgets_scale = true});
  operation("uses_output", "The slope is computed from y instead of tanh(x).", gradient_of_x, {.uses_output = true});
  operation("mean_over_rows", "The gradient of scale is the mean over the rows, not their sum.", gradient_of_scale,
            {.mean_over_rows = true});
  operation("last_row", "Each row overwrites the gradient of scale.", gradient_of_scale, {.last_row = true});
  operation("input_for_tanh", "The gradient of scale uses x instead of tanh(x).", gradient_of_scale,
            {.input_for_tanh = true});
  operation("computes_both", "Both gradients are computed, whatever is needed.", needed, {.computes_both = true});
  operation("writes_to_upstream", "The backward writes to the gradient that it is given.", needed,
            {.writes_to_upstream = true});
  operation("always_records", "A node is recorded also where gradients are disabled.", needed,
            {.always_records = true});
  operation("records_for_x_only", "No node is recorded where only scale needs a gradient.", needed,
            {.records_for_x_only = true});
  operation("swaps_inputs", "The inputs of the node are scale and x.", needed, {.swaps_inputs = true});
  operation("divides_by_scale", "The backward computes tanh(x) as y / scale, also where the scale is 0.", gradient_of_x,
            {.divides_by_scale = true});
  operation("another_name", "The node has another name.", needed, {.name = "tanh"});
  operation("saves_a_copy", "A copy of x is saved as well, and takes as much memory again.", needed,
            {.saves_a_copy = true});
  operation("keeps_without_saving", "The node keeps its tensors as members, so nobody notices that they change.",
            "a saved tensor that was written to is refused", {.keeps_without_saving = true});
  accumulation("mean_of_means", "Each micro-batch counts equally, whatever its size.", uneven, mean_of_means);
  accumulation("sum_of_losses", "The loss is the sum over the samples, not their mean.", uneven, sum_of_losses);
  accumulation("counts_all_samples", "The sum is divided by all samples, also those without a label.",
               "samples without a label do not count", counts_all_samples);
  accumulation("weighs_by_size", "A micro-batch weighs as many samples as it has, with or without a label.",
               "samples without a label do not count", weighs_by_size);
  accumulation("mean_of_nothing", "The mean over the labels of a micro-batch that has none.",
               "a micro-batch may have no labels at all", mean_of_nothing);
  accumulation("wipes_gradients", "The gradients are cleared first.", "gradients add to those that are there",
               wipes_gradients);
  accumulation("one_backward_at_the_end", "All losses are summed up, and one backward runs at the end.",
               "one micro-batch's graph is alive at a time", one_backward_at_the_end);
  return answers;
}

}  // namespace stagecoach::labs::lab1
