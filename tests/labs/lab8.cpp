#include "tests/labs/lab8.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/optimizer.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/lab8_checks.h"
#include "tests/labs/lab8_operations.h"

namespace stagecoach::labs::lab8 {
namespace {

constexpr const char* kSlices = "chapters/08_tensor_parallel/lab/linear_pair.h, cut_pair; chapter 8, figure 8.1";
constexpr const char* kPair = "chapters/08_tensor_parallel/lab/linear_pair.h, pair_forward; chapter 8, \"The idea\"";
constexpr const char* kBias = "chapters/08_tensor_parallel/lab/README.md, \"Part 2\", questions 2 and 3";

struct Sizes {
  std::int64_t samples = varied("lab 8: samples", 5, 6);
  std::int64_t inputs = varied("lab 8: inputs", 3, 4);
  std::int64_t hidden;
  std::int64_t outputs = 2;
};

Sizes sizes_for(int ranks) { return {.hidden = 2 * ranks}; }

lab::LinearPair whole_pair(const Sizes& sizes, Device device = {}) {
  return {whole_numbers({sizes.hidden, sizes.inputs}, "a", device), whole_numbers({sizes.hidden}, "a_bias", device),
          whole_numbers({sizes.outputs, sizes.hidden}, "b", device), whole_numbers({sizes.outputs}, "b_bias", device)};
}

Tensor x_of(const Sizes& sizes, int step, Device device = {}) {
  return whole_numbers({sizes.samples, sizes.inputs}, fmt::format("x of step {}", step), device);
}
Tensor upstream_of_pair(const Sizes& sizes, int step, Device device = {}) {
  return whole_numbers({sizes.samples, sizes.outputs}, fmt::format("grad of step {}", step), device);
}

NamedTensors named(const lab::LinearPair& pair) {
  return {{"a", pair.a}, {"a_bias", pair.a_bias}, {"b", pair.b}, {"b_bias", pair.b_bias}};
}

/// Returns features first … first + count - 1 of a tensor of the pair, or of its gradient.
Values slice_of(const std::string& name, const Tensor& whole, std::int64_t first, std::int64_t count) {
  return (name == "b_bias" ? whole
          : name == "b"    ? narrow_columns(whole, first, count)
                           : whole.narrow(first, count))
      .to_vector<float>();
}

/// Returns features first, first + ranks, … likewise.
Values every_other(const std::string& name, const Tensor& whole, std::int64_t first, int ranks) {
  if (name == "b_bias") {
    return whole.to_vector<float>();
  }
  std::vector<Tensor> features;
  const Tensor rows = name == "b" ? transpose(whole) : whole;
  for (std::int64_t i = first; i < rows.size(0); i += ranks) {
    features.push_back(rows.narrow(i, 1));
  }
  const Tensor all = cat(features);
  return (name == "b" ? transpose(all) : all).to_vector<float>();
}

void cuts_slices(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const Sizes sizes = sizes_for(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      set_case(fmt::format("rank {} of {} and {} hidden features", rank, ranks, sizes.hidden));
      const lab::LinearPair whole = whole_pair(sizes);
      const NamedTensors mine = named(answer.cut_pair(whole, rank, ranks));
      const std::int64_t count = sizes.hidden / ranks;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const auto& [name, slice] = mine[i];
        const Tensor& all = named(whole)[i].second;
        require_equal(
            slice_of(name, all, rank * count, count), slice,
            name == "b_bias"
                ? "the slice of b_bias: all of it"
                : fmt::format("the slice of {}: hidden features {} to {}", name, rank * count, (rank + 1) * count - 1),
            kSlices,
            {{slice_of(name, all, 0, count), "those of rank 0"},
             {every_other(name, all, rank, ranks), "every other feature, not a block of them"},
             {scaled(all.to_vector<float>(), 1 / static_cast<float>(ranks)), "it divided by the number of ranks"}});
        if (!slice.is_leaf() || !slice.requires_grad()) {
          throw Failed(fmt::format("the slice of {} to be a leaf that requires a gradient{}", name, for_case()),
                       slice.is_leaf() ? "it requires none" : "it has a history", kSlices);
        }
        if (slice.storage()->bytes() > slice.bytes() || slice.storage() == all.storage()) {
          throw Failed(fmt::format("the slice of {} to have {} bytes of its own{}", name, slice.bytes(), for_case()),
                       fmt::format("it keeps {} bytes of the whole tensor in memory", slice.storage()->bytes()),
                       kSlices);
        }
      }
    }
  }
}

/// Returns the slices of a rank, cut by the grader: so a mistake in cut_pair costs no other points.
lab::LinearPair right_slices(const Sizes& sizes, Communicator& comm) {
  const NamedTensors whole = named(whole_pair(sizes));
  const std::int64_t count = sizes.hidden / comm.size();
  const auto slice = [&](std::size_t i, const Shape& shape) {
    const Values values = slice_of(whole[i].first, whole[i].second, comm.rank() * count, count);
    return Tensor::from(values, shape, comm.device()).set_requires_grad(true);
  };
  return {slice(0, {count, sizes.inputs}), slice(1, {count}), slice(2, {sizes.outputs, count}),
          slice(3, {sizes.outputs})};
}

Tensor forward_of_one_device(const Tensor& x, const lab::LinearPair& whole) {
  return linear(relu(linear(x, whole.a, whole.a_bias)), whole.b, whole.b_bias);
}

/// Returns the output if hidden features of different ranks are added up.
Values output_of_summed_features(const Tensor& x, const lab::LinearPair& whole, int ranks) {
  const std::int64_t count = whole.a.size(0) / ranks;
  Tensor hidden_sum;
  Tensor b_sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor hidden = linear(x, whole.a.narrow(rank * count, count), whole.a_bias.narrow(rank * count, count));
    const Tensor b = narrow_columns(whole.b, rank * count, count);
    hidden_sum = rank == 0 ? hidden : add(hidden_sum, hidden);
    b_sum = rank == 0 ? b : add(b_sum, b);
  }
  return linear(relu(hidden_sum), b_sum, whole.b_bias).to_vector<float>();
}

void pair_computes(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const Sizes sizes = sizes_for(ranks);
    const lab::LinearPair whole = whole_pair(sizes);
    const Tensor x = x_of(sizes, 0);
    const Tensor expected = forward_of_one_device(x, whole);
    const Values biased = add_broadcast(expected, scale(whole.b_bias, ranks - 1)).to_vector<float>();
    const Values summed = output_of_summed_features(x, whole, ranks);
    Collectives collectives(ranks, texts());
    on_ranks(ranks, collectives, [&](Communicator& comm) {
      const Tensor mine = x_of(sizes, 0, comm.device());
      const Tensor y = answer.pair_forward(mine, right_slices(sizes, comm), comm);
      const auto summand_of = [&](double factor) {
        return forward_of_one_device(scale(mine, factor), right_slices(sizes, comm)).to_vector<float>();
      };
      require_equal(expected.to_vector<float>(), y, fmt::format("the output of one device, on rank {}", comm.rank()),
                    kPair,
                    {{biased, fmt::format("b_bias in it {} times: each rank adds it to its summand", ranks)},
                     {summand_of(1), "this rank's summand only: g is missing"},
                     {summand_of(ranks), "this rank's summand for the sum of all x: f and g are swapped"},
                     {summed, "hidden features of different ranks added up: nothing is summed between the layers"}});
    });
  }
}

/// The gradients of one device, of x and of the pair.
struct Expected {
  Tensor x;
  lab::LinearPair whole;
};
Expected backward_of_one_device(const Sizes& sizes) {
  Expected result{x_of(sizes, 0).set_requires_grad(true), whole_pair(sizes)};
  for (auto& [name, tensor] : named(result.whole)) {
    tensor.set_requires_grad(true);
  }
  backward(forward_of_one_device(result.x, result.whole), upstream_of_pair(sizes, 0));
  return result;
}

void pair_has_gradients(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const Sizes sizes = sizes_for(ranks);
    const Expected expected = backward_of_one_device(sizes);
    const NamedTensors whole = named(expected.whole);
    Collectives collectives(ranks, texts());
    on_ranks(ranks, collectives, [&](Communicator& comm) {
      const Tensor x = x_of(sizes, 0, comm.device()).set_requires_grad(true);
      const lab::LinearPair mine = right_slices(sizes, comm);
      backward(answer.pair_forward(x, mine, comm), upstream_of_pair(sizes, 0, comm.device()));
      const std::int64_t count = sizes.hidden / ranks;
      const NamedTensors slices = named(mine);
      for (std::size_t i = 0; i < slices.size(); ++i) {
        const auto& [name, slice] = slices[i];
        const Values right = slice_of(name, whole[i].second.grad(), comm.rank() * count, count);
        require_equal(right, slice.grad(),
                      fmt::format("the gradient of {} as on one device, on rank {}", name, comm.rank()),
                      name == "b_bias" ? kBias : kPair,
                      {{scaled(right, static_cast<float>(ranks)),
                        fmt::format("{} times that: an all-reduce adds what every rank has already", ranks)}});
      }
      const Tensor alone = x_of(sizes, 0, comm.device()).set_requires_grad(true);
      backward(forward_of_one_device(alone, right_slices(sizes, comm)), upstream_of_pair(sizes, 0, comm.device()));
      require_equal(expected.x.grad().to_vector<float>(), x.grad(),
                    fmt::format("the gradient of x as on one device, on rank {}", comm.rank()), kPair,
                    {{alone.grad().to_vector<float>(), "the part of this rank's hidden features: f is missing"}});
    });
  }
}

/// Trains a pair for two steps with `forward`. Multiples of 1/256 still have exact sums then.
template <class Forward>
NamedTensors trained(const lab::LinearPair& pair, const Sizes& sizes, Device device, const Forward& forward) {
  constexpr int kSteps = 2;
  Sgd optimizer(named(pair), {.learning_rate = 1.0 / 16});
  for (int step = 0; step < kSteps; ++step) {
    const Tensor x = x_of(sizes, step, device).set_requires_grad(true);
    backward(forward(x, pair), upstream_of_pair(sizes, step, device));
    optimizer.step();
    optimizer.zero_grad();
  }
  return named(pair);
}

void pair_trains(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const Sizes sizes = sizes_for(ranks);
    lab::LinearPair whole = whole_pair(sizes);
    for (auto& [name, tensor] : named(whole)) {
      tensor.set_requires_grad(true);
    }
    const NamedTensors expected = trained(whole, sizes, {}, forward_of_one_device);
    Collectives collectives(ranks, texts());
    on_ranks(ranks, collectives, [&](Communicator& comm) {
      const auto forward = [&](const Tensor& x, const lab::LinearPair& pair) {
        return answer.pair_forward(x, pair, comm);
      };
      const NamedTensors slices = trained(right_slices(sizes, comm), sizes, comm.device(), forward);
      const std::int64_t count = sizes.hidden / ranks;
      const NoGrad no_grad;
      for (std::size_t i = 0; i < slices.size(); ++i) {
        const auto& [name, slice] = slices[i];
        require_equal(slice_of(name, expected[i].second, comm.rank() * count, count), slice,
                      fmt::format("{} as on one device after two steps, on rank {}", name, comm.rank()), kPair);
      }
    });
  }
}

void pair_sends_what_is_needed(const Answer& answer) {
  const int ranks = rank_counts()[1];
  const Sizes sizes = sizes_for(ranks);
  for (const bool needs_gradient : {true, false}) {
    Collectives collectives(ranks, texts());
    on_ranks(ranks, collectives, [&](Communicator& comm) {
      const Tensor x = x_of(sizes, 0, comm.device()).set_requires_grad(needs_gradient);
      const Tensor y = answer.pair_forward(x, right_slices(sizes, comm), comm);
      collectives.stamp(comm.rank(), static_cast<int>(Pass::backward));
      backward(y, upstream_of_pair(sizes, 0, comm.device()));
    });
    require_calls(collectives, Pass::forward, 1, "the pair");
    require_calls(collectives, Pass::backward, needs_gradient ? 1 : 0,
                  needs_gradient ? "the pair" : "a pair whose x needs no gradient");
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const auto check = [&](void (*body)(const Answer&)) { return [answer, body] { body(answer); }; };
  return {
      {"f: the elements of x, and the sum of the ranks' gradients", 15, check(f_copies), kOperations},
      {"g: the sum of the ranks' x, and the gradient as it is", 15, check(g_sums), kOperations},
      {"f and g write to nothing that they are given", 10, check(write_nothing), kWrites},
      {"f and g record and send only what is needed", 10, check(record_and_send_what_is_needed), kOperations},
      {"slices: this rank's hidden features, in memory of their own", 15, check(cuts_slices), kSlices},
      {"pair: the output equals that of one device", 10, check(pair_computes), kPair},
      {"pair: gradients equal those of one device, on every rank", 15, check(pair_has_gradients), kPair},
      {"pair: weights equal those of one device after two steps", 5, check(pair_trains), kPair},
      {"pair: one all-reduce forward and one backward", 5, check(pair_sends_what_is_needed), kCalls},
  };
}

}  // namespace stagecoach::labs::lab8
