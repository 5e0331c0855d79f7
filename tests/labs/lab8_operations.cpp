#include "tests/labs/lab8_operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "tests/labs/lab8_checks.h"

namespace stagecoach::labs::lab8 {
namespace {

/// The same numbers on each rank, or other ones: [ranks].
using OfRanks = std::vector<Values>;

Values sum_of(const OfRanks& parts) {
  Values sum(parts.front().size());
  for (const Values& part : parts) {
    std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

using Operation = std::function<Tensor(const Tensor& x, Communicator& comm)>;
const Shape kShape{3, 4};

Tensor input_of(int rank, Device device) { return whole_numbers(kShape, fmt::format("x {}", rank), device); }
Tensor upstream_of(int rank, Device device) { return whole_numbers(kShape, fmt::format("grad {}", rank), device); }

template <class Make>
OfRanks values_of(int ranks, const Make& make) {
  OfRanks all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(make(rank, Device{}).template to_vector<float>());
  }
  return all;
}

/// Runs an operation forward and backward on each rank. x and the upstream gradient are those of rank `x_of(rank)` and
/// `grad_of(rank)`. Calls check(rank, y, gradient of x).
template <class RankOf, class Check>
void for_each_rank(int ranks, const Operation& operation, const RankOf& x_of, const RankOf& grad_of,
                   const Check& check) {
  Collectives collectives(ranks, texts());
  on_ranks(ranks, collectives, [&](Communicator& comm) {
    const Tensor x = input_of(x_of(comm.rank()), comm.device()).set_requires_grad(true);
    const Tensor y = operation(x, comm);
    if (!y.defined() || y.shape() != x.shape() || y.is_leaf()) {
      throw Failed(fmt::format("a result of shape {} with a node{}", to_string(x.shape()), for_case()),
                   y.defined() && y.shape() == x.shape() ? "a result without history" : describe(y), kOperations);
    }
    const Values values = y.to_vector<float>();
    backward(y, upstream_of(grad_of(comm.rank()), comm.device()));
    check(comm.rank(), Tensor::from(values, kShape), x.grad());
  });
}

using RankOf = int (*)(int rank);
int zero(int) { return 0; }
int itself(int rank) { return rank; }

/// Throws Failed unless an operation leaves x and the upstream gradient as they were.
void require_writes_nothing(const char* name, const Operation& operation) {
  const int ranks = rank_counts()[1];
  Collectives collectives(ranks, texts());
  on_ranks(ranks, collectives, [&](Communicator& comm) {
    const Tensor x = input_of(comm.rank(), comm.device()).set_requires_grad(true);
    const Tensor upstream = upstream_of(comm.rank(), comm.device());
    const Values x_before = x.to_vector<float>();
    const Values upstream_before = upstream.to_vector<float>();
    const Tensor y = operation(x, comm);
    if (x.to_vector<float>() != x_before) {
      throw Failed(fmt::format("{} to leave x as it is{}", name, for_case()), "it overwrites x", kWrites);
    }
    if (!x.is_leaf()) {
      throw Failed(fmt::format("{} to leave x as it is{}", name, for_case()),
                   "x has the node of y: a copy of a Tensor is the same tensor; y must be another one, or an alias",
                   kWrites);
    }
    backward(y, upstream);
    if (upstream.to_vector<float>() != upstream_before) {
      throw Failed(fmt::format("the backward of {} to leave the gradient of y as it is{}", name, for_case()),
                   "it overwrites it", kWrites);
    }
  });
}

/// Calls the operation on tensors that need a gradient or not, and counts.
void require_only_needed(const char* name, const Operation& operation, std::size_t forward_calls,
                         std::size_t backward_calls) {
  const int ranks = rank_counts()[0];
  Collectives collectives(ranks, texts());
  on_ranks(ranks, collectives, [&](Communicator& comm) {
    const Tensor x = input_of(0, comm.device()).set_requires_grad(true);
    const Tensor y = operation(x, comm);
    collectives.stamp(comm.rank(), static_cast<int>(Pass::backward));
    backward(y, upstream_of(0, comm.device()));
  });
  require_calls(collectives, Pass::forward, forward_calls, name);
  require_calls(collectives, Pass::backward, backward_calls, name);
  Collectives constant(ranks, texts());
  on_ranks(ranks, constant, [&](Communicator& comm) {
    const NoGrad no_grad;
    if (!operation(input_of(0, comm.device()).set_requires_grad(true), comm).is_leaf()) {
      throw Failed(fmt::format("no node of {} where gradients are disabled", name), "one is recorded", kOperations);
    }
  });
}

}  // namespace

void f_copies(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const Values x = input_of(0, {}).to_vector<float>();
    const OfRanks grads = values_of(ranks, upstream_of);
    const Values sum = sum_of(grads);
    for_each_rank<RankOf>(
        ranks, answer.copy_to_ranks, zero, itself, [&](int rank, const Tensor& y, const Tensor& grad) {
          require_equal(
              x, y, "f: the elements of x", kOperations,
              {{scaled(x, static_cast<float>(ranks)), "their sum over the ranks: f adds in its backward only"}});
          require_equal(
              sum, grad, fmt::format("f: the sum of the ranks' gradients, as the gradient of x on rank {}", rank),
              kOperations,
              {{grads[static_cast<std::size_t>(rank)], "the gradient of this rank only: the all-reduce is missing"},
               {scaled(sum, 1 / static_cast<float>(ranks)), "the mean over the ranks, not the sum"}});
        });
  }
}

void g_sums(const Answer& answer) {
  for (const int ranks : rank_counts()) {
    const OfRanks parts = values_of(ranks, input_of);
    const Values sum = sum_of(parts);
    const Values upstream = upstream_of(0, {}).to_vector<float>();
    for_each_rank<RankOf>(
        ranks, answer.sum_over_ranks, itself, zero, [&](int rank, const Tensor& y, const Tensor& grad) {
          require_equal(sum, y, fmt::format("g: the sum of the ranks' x, on rank {}", rank), kOperations,
                        {{parts[static_cast<std::size_t>(rank)], "the x of this rank only: the all-reduce is missing"},
                         {scaled(sum, 1 / static_cast<float>(ranks)), "the mean over the ranks, not the sum"}});
          require_equal(
              upstream, grad, "g: the gradient of the sum, as the gradient of x", kOperations,
              {{scaled(upstream, static_cast<float>(ranks)),
                fmt::format("{} times that: all ranks have this gradient already, and it is summed again", ranks)},
               {scaled(upstream, 1 / static_cast<float>(ranks)),
                "it divided by the number of ranks: g is a sum, not a mean"}});
        });
  }
}

void write_nothing(const Answer& answer) {
  require_writes_nothing("f", answer.copy_to_ranks);
  require_writes_nothing("g", answer.sum_over_ranks);
}

void record_and_send_what_is_needed(const Answer& answer) {
  require_only_needed("f", answer.copy_to_ranks, 0, 1);
  require_only_needed("g", answer.sum_over_ranks, 1, 0);
}

}  // namespace stagecoach::labs::lab8
