#include "tests/labs/lab1.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "tests/labs/class_settings.h"

namespace stagecoach::labs::lab1 {
namespace {

constexpr const char* kOperation =
    "chapters/01_single_device/lab/scaled_tanh.h; docs/reference/autograd.md, \"Gradients by the chain rule\"";
constexpr const char* kScale = "chapters/01_single_device/lab/README.md, \"What to check on paper first\", question 1";
constexpr const char* kContract = "chapters/01_single_device/lab/scaled_tanh.h";
constexpr const char* kKeeps = "docs/reference/autograd.md, \"What each operation keeps\"; core/autograd/node.h";
constexpr const char* kAccumulate = "chapters/01_single_device/lab/accumulate.h; chapter 1, \"Micro-batches\"";

Tensor normal(const Shape& shape, const std::string& name) {
  const Philox random(class_seed(), name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = random.normal(i);
  }
  return Tensor::from(values, shape);
}

Tensor leaf(const Shape& shape, const std::string& name) { return normal(shape, name).set_requires_grad(true); }

bool is_close(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * (1 + std::abs(b)); }

/// Throws Failed unless the elements of `got` are those of `expected`, within `tolerance`.
void require_close(const Tensor& got, const std::vector<double>& expected, const Shape& shape, const std::string& what,
                   const std::string& look_at, double tolerance) {
  if (!got.defined() || got.shape() != shape || got.dtype() != DType::float64) {
    throw Failed(fmt::format("{}: float64{}", what, stagecoach::to_string(shape)), describe(got), look_at);
  }
  const std::vector<double> values = got.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_close(values[i], expected[i], tolerance)) {
      throw Failed(fmt::format("{}: element {} is {:.8g}", what, i, expected[i]), fmt::format("{:.8g}", values[i]),
                   look_at);
    }
  }
}

// The operation.

struct Inputs {
  Tensor x;
  Tensor scale;
  Tensor upstream;  // the gradient of the output
};

Inputs inputs() {
  const std::int64_t n = varied("lab 1: rows", 3, 6);
  const std::int64_t c = varied("lab 1: columns", 4, 7);
  Inputs in{leaf({n, c}, "x"), leaf({c}, "scale"), normal({n, c}, "upstream")};
  const NoGrad no_grad;
  in.scale.mutable_data<double>()[1] = 0;  // tanh(x) cannot be computed from y there
  return in;
}

std::vector<double> expected_values(const Tensor& x, const Tensor& scale) {
  std::vector<double> values = x.to_vector<double>();
  const std::vector<double> factors = scale.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = factors[i % factors.size()] * std::tanh(values[i]);
  }
  return values;
}

void computes_values(const Answer& answer) {
  const Inputs in = inputs();
  const Tensor y = answer.scaled_tanh(in.x, in.scale);
  require_close(y, expected_values(in.x, in.scale), in.x.shape(), "scaled_tanh(x, scale)", kOperation, 1e-12);
}

/// Returns d(sum of upstream * scaled_tanh) / d(input), where `input` is in.x or in.scale, by central differences.
std::vector<double> finite_differences(const Inputs& in, Tensor input) {
  constexpr double kStep = 1e-6;
  const NoGrad no_grad;
  const std::vector<double> upstream = in.upstream.to_vector<double>();
  const auto sum = [&] {
    const std::vector<double> values = expected_values(in.x, in.scale);
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      total += values[i] * upstream[i];
    }
    return total;
  };
  std::vector<double> gradient;
  for (std::int64_t i = 0; i < input.numel(); ++i) {
    const double kept = input.data<double>()[i];
    input.mutable_data<double>()[i] = kept + kStep;
    const double above = sum();
    input.mutable_data<double>()[i] = kept - kStep;
    const double below = sum();
    input.mutable_data<double>()[i] = kept;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

/// Throws Failed unless the gradient of the output is `upstream`, as it was before the backward.
void require_upstream_kept(const Inputs& in, const std::vector<double>& upstream) {
  if (in.upstream.to_vector<double>() != upstream) {
    throw Failed("the gradient of the output is as it was", "backward has written to the gradient that it is given",
                 kContract);
  }
}

/// Throws Failed unless the gradient of `input`, which is in.x or in.scale, is that of finite differences. If it is
/// wrong and the backward has written to its upstream gradient, that is named: the formula may be right.
void differentiates(const Answer& answer, const Inputs& in, const Tensor& input, const std::string& what,
                    const std::string& look_at) {
  const std::vector<double> upstream = in.upstream.to_vector<double>();
  const std::vector<double> expected = finite_differences(in, input);
  backward(answer.scaled_tanh(in.x, in.scale), in.upstream);
  try {
    require_close(input.grad(), expected, input.shape(), what, look_at, 1e-6);
  } catch (const Failed&) {
    require_upstream_kept(in, upstream);
    throw;
  }
}

void differentiates_x(const Answer& answer) {
  const Inputs in = inputs();
  differentiates(answer, in, in.x, "the gradient of x", kOperation);
}

void differentiates_scale(const Answer& answer) {
  const Inputs in = inputs();
  differentiates(answer, in, in.scale, "the gradient of scale", kScale);
}

/// Throws Failed unless the node has its name and saves no copy of an input.
void require_contract_of_node(const Node& node, const Inputs& in) {
  if (std::string(node.name()) != "scaled_tanh") {
    throw Failed("a node called \"scaled_tanh\"", fmt::format("one called \"{}\"", node.name()), kContract);
  }
  for (const Node::Saved& saved : node.saved()) {
    for (const auto& [name, input] : {std::pair("x", in.x), std::pair("scale", in.scale)}) {
      const bool is_equal = saved.tensor.shape() == input.shape() && saved.tensor.dtype() == input.dtype() &&
                            saved.tensor.to_vector<double>() == input.to_vector<double>();
      if (is_equal && saved.tensor.data<double>() != input.data<double>()) {
        throw Failed(fmt::format("no copy of {}: to save a tensor keeps its storage", name),
                     fmt::format("a copy, saved as \"{}\"", saved.name), kContract);
      }
    }
  }
}

/// Throws Failed unless a node with the inputs x and scale is recorded if either needs a gradient, and only then.
void require_recorded_if_needed(const Answer& answer) {
  for (const bool x_needs_one : {true, false}) {
    for (const bool scale_needs_one : {true, false}) {
      Inputs in = inputs();
      in.x.set_requires_grad(x_needs_one);
      in.scale.set_requires_grad(scale_needs_one);
      const auto node = answer.scaled_tanh(in.x, in.scale).grad_node();
      const std::string who = x_needs_one && scale_needs_one ? "x and scale need a gradient"
                              : x_needs_one                  ? "only x needs a gradient"
                              : scale_needs_one              ? "only scale needs a gradient"
                                                             : "neither x nor scale needs a gradient";
      const bool is_expected = x_needs_one || scale_needs_one;
      if ((node != nullptr) != is_expected) {
        throw Failed(fmt::format("{} where {}", is_expected ? "a node" : "no node", who),
                     is_expected ? "no node" : "a node", "should_record in core/autograd/node.h");
      }
      if (node != nullptr && node->edges().size() != 2) {
        throw Failed("a node with two inputs, x and scale", fmt::format("one with {}", node->edges().size()), kKeeps);
      }
      if (node != nullptr &&
          (node->edges()[0].needs_grad() != x_needs_one || node->edges()[1].needs_grad() != scale_needs_one)) {
        throw Failed("a node with the inputs x and scale, in this order", "other inputs, or another order", kKeeps);
      }
    }
  }
}

void computes_what_is_needed(const Answer& answer) {
  require_recorded_if_needed(answer);
  const Inputs in = inputs();
  const std::vector<double> upstream = in.upstream.to_vector<double>();
  const Tensor y = answer.scaled_tanh(in.x, in.scale);
  require_contract_of_node(*y.grad_node(), in);
  for (const bool x_is_needed : {true, false}) {
    const Gradients gradients = y.grad_node()->backward(in.upstream, {x_is_needed, !x_is_needed});
    const auto is_there = [&](std::size_t i) { return i < gradients.size() && gradients[i].defined(); };
    if (is_there(0) != x_is_needed || is_there(1) == x_is_needed) {
      throw Failed(fmt::format("the gradient of {} only, where no other is needed", x_is_needed ? "x" : "scale"),
                   is_there(0) && is_there(1) ? "both" : "another one, or none", kKeeps);
    }
  }
  require_upstream_kept(in, upstream);
  const NoGrad no_grad;
  if (!answer.scaled_tanh(in.x, in.scale).is_leaf()) {
    throw Failed("no node where gradients are disabled (NoGrad)", "a node", "should_record in core/autograd/node.h");
  }
}

void refuses_changed_tensors(const Answer& answer) {
  Inputs in = inputs();
  const Tensor y = answer.scaled_tanh(in.x, in.scale);
  in.scale.fill(2);
  try {
    backward(y, in.upstream);
  } catch (const Error&) {
    return;
  }
  throw Failed("the backward refuses to run, as scale was written to after the forward", "it runs", kKeeps);
}

// The accumulation.

constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kClasses = 4;

/// Counts the graphs that have run forward and not yet backward.
struct Graphs {
  int alive = 0;
  int most = 0;
};

class ProbeNode final : public Node {
 public:
  ProbeNode(const Tensor& x, Graphs& graphs) : Node("probe", {x}), graphs_(graphs) {
    ++graphs_.alive;
    graphs_.most = std::max(graphs_.most, graphs_.alive);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    --graphs_.alive;
    return {grad.clone()};
  }

 private:
  Graphs& graphs_;
};

class Probe final : public Module {
 public:
  explicit Probe(Graphs& graphs) : graphs_(graphs) {}
  Tensor forward(const Tensor& x) override {
    Tensor y = x.detach();
    if (should_record({&x})) {
      y.set_grad_node(std::make_shared<ProbeNode>(x, graphs_));
    }
    return y;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  Graphs& graphs_;
};

std::shared_ptr<Sequential> make_probed_model(Graphs& graphs) {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(kFeatures, 6));
  model->add("probe", std::make_shared<Probe>(graphs));
  model->add("relu", std::make_shared<ReLU>());
  model->add("fc2", std::make_shared<Linear>(6, kClasses));
  model->materialize(class_seed(), {}, DType::float64);
  return model;
}

/// Returns samples of which every `unlabelled`-th has no label; 0: all have one, 1: none has.
lab::Samples samples(std::int64_t count, int unlabelled, const std::string& name) {
  const Philox random(class_seed(), name);
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool has_none = unlabelled > 0 && (i + 1) % unlabelled == 0;
    labels.push_back(has_none ? lab::kNoLabel
                              : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), kClasses)));
  }
  return {normal({count, kFeatures}, name), Tensor::from(labels, {count})};
}

using Batch = std::vector<lab::Samples>;

/// Adds the gradient of all labelled samples at once, and returns their mean loss.
double add_gradient_of_whole(Module& model, const Batch& batch) {
  std::vector<Tensor> images;
  std::vector<std::int32_t> labels;
  for (const lab::Samples& part : batch) {
    const lab::Samples with_label = labelled(part);
    images.push_back(with_label.images);
    const std::vector<std::int32_t> more = with_label.labels.to_vector<std::int32_t>();
    labels.insert(labels.end(), more.begin(), more.end());
  }
  const auto count = static_cast<std::int64_t>(labels.size());
  const Tensor loss = cross_entropy(model.forward(cat(images)), Tensor::from(labels, {count}));
  backward(loss);
  return loss.item();
}

/// Throws Failed unless the answer, called for each batch, gives the losses and the sum of the gradients of whole
/// batches.
void require_whole_gradients(const Answer& answer, const std::vector<Batch>& batches, const std::string& look_at) {
  constexpr double kTolerance = 1e-9;
  Graphs graphs;
  const auto model = make_probed_model(graphs);
  const auto whole = make_probed_model(graphs);
  for (const Batch& batch : batches) {
    const double expected = add_gradient_of_whole(*whole, batch);
    const double loss = answer.accumulate(*model, batch);
    if (!is_close(loss, expected, kTolerance)) {
      throw Failed(fmt::format("a mean loss of {:.8g}", expected), fmt::format("{:.8g}", loss), look_at);
    }
  }
  const NamedTensors mine = model->named_parameters();
  const NamedTensors theirs = whole->named_parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Tensor expected = theirs[i].second.grad();
    require_close(mine[i].second.grad(), expected.to_vector<double>(), expected.shape(),
                  "the gradient of " + mine[i].first, look_at, kTolerance);
  }
}

void weighs_uneven_microbatches(const Answer& answer) {
  const std::int64_t n = varied("lab 1: micro-batch", 6, 9);
  require_whole_gradients(answer, {{samples(n, 0, "a"), samples(n, 0, "b"), samples(2, 0, "c"), samples(1, 0, "d")}},
                          kAccumulate);
}

void leaves_out_the_unlabelled(const Answer& answer) {
  const std::int64_t n = varied("lab 1: micro-batch", 6, 9);
  require_whole_gradients(answer, {{samples(n, 2, "a"), samples(n, 3, "b"), samples(n, 0, "c")}}, kAccumulate);
}

void takes_microbatches_without_labels(const Answer& answer) {
  require_whole_gradients(answer, {{samples(4, 1, "a"), samples(5, 2, "b"), samples(3, 1, "c")}}, kAccumulate);
  Graphs graphs;
  const auto model = make_probed_model(graphs);
  const double loss = answer.accumulate(*model, {samples(3, 1, "a"), samples(2, 1, "b")});
  if (!(loss == 0)) {
    throw Failed("a loss of 0 if no sample of the batch has a label", fmt::format("{}", loss), kAccumulate);
  }
}

void adds_to_gradients(const Answer& answer) {
  require_whole_gradients(answer, {{samples(4, 0, "a"), samples(4, 0, "b")}, {samples(4, 0, "c"), samples(4, 0, "d")}},
                          kAccumulate);
}

void keeps_one_graph(const Answer& answer) {
  Graphs graphs;
  const auto model = make_probed_model(graphs);
  const Batch batch{samples(3, 0, "a"), samples(3, 2, "b"), samples(3, 0, "c"), samples(3, 3, "d")};
  answer.accumulate(*model, batch);
  if (graphs.most != 1 || graphs.alive != 0) {
    throw Failed("1 graph alive at a time, and none at the end",
                 fmt::format("{} at a time, {} at the end", graphs.most, graphs.alive), kAccumulate);
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const auto with = [&answer](void (*check)(const Answer&)) { return [answer, check] { check(answer); }; };
  return {
      {"scaled_tanh computes its values", 10, with(computes_values), kOperation},
      {"the gradient of x equals finite differences", 15, with(differentiates_x), kOperation},
      {"the gradient of scale equals finite differences", 15, with(differentiates_scale), kScale},
      {"only what is needed is recorded and computed", 10, with(computes_what_is_needed), kKeeps},
      {"a saved tensor that was written to is refused", 10, with(refuses_changed_tensors), kKeeps},
      {"uneven micro-batches give the gradient of the whole batch", 15, with(weighs_uneven_microbatches), kAccumulate},
      {"samples without a label do not count", 5, with(leaves_out_the_unlabelled), kAccumulate},
      {"a micro-batch may have no labels at all", 5, with(takes_microbatches_without_labels), kAccumulate},
      {"gradients add to those that are there", 5, with(adds_to_gradients), kAccumulate},
      {"one micro-batch's graph is alive at a time", 10, with(keeps_one_graph), kAccumulate},
  };
}

}  // namespace stagecoach::labs::lab1
