#include "tests/labs/lab9_units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/autograd/backward.h"
#include "nn/layers.h"
#include "tests/labs/lab9_checks.h"

namespace stagecoach::labs::lab9 {
namespace {

constexpr std::size_t kSlack = 1024;  // bytes of small tensors

/// A linear layer, which is a unit by itself.
struct Size {
  std::int64_t inputs;
  std::int64_t outputs;
  std::int64_t count() const { return (inputs + 1) * outputs; }
};

/// With zeros at the end, with a shard that has only zeros, and with memory that counts.
std::vector<Size> sizes() { return {{4, 2}, {1, 1}, {64, 33}}; }

std::shared_ptr<Sequential> layers_of(const Size& size) {
  auto layers = std::make_shared<Sequential>();
  layers->add("fc", std::make_shared<Linear>(size.inputs, size.outputs));
  return layers;
}

/// Calls body(unit, comm) on all ranks for a unit of each size.
template <class Body>
void for_each_unit(const Body& body) {
  for (const Size& size : sizes()) {
    set_case(fmt::format("{} weights on {} ranks", size.count(), ranks()));
    Collectives collectives(ranks(), texts());
    run_watched_collectives(ranks(), collectives, [&](Communicator& comm) {
      lab::Unit unit = make_unit(layers_of(size), comm);
      body(size, unit, comm, collectives);
    });
  }
}

/// Sets this rank's shard of a unit whose whole weights are `values`, as an optimizer does.
void set_shard(lab::Unit& unit, const Values& values, Communicator& comm) {
  unit.shard.copy_from(Tensor::from(part_of(values, comm.rank(), comm.size()), unit.shard.shape(), comm.device()));
}

void require_whole(const lab::Unit& unit, const Values& values, const std::string& when) {
  auto next = values.begin();
  for (const Tensor& parameter : unit.parameters) {
    if (!has_memory(parameter)) {
      throw Failed(fmt::format("parameters with elements {}{}", when, for_case()), "their memory is dropped", kUnit);
    }
    const auto end = next + static_cast<std::ptrdiff_t>(parameter.numel());
    require_equal({next, end}, parameter,
                  fmt::format("the weights {} of all ranks' shards {}", stagecoach::to_string(parameter.shape()), when),
                  kUnit);
    next = end;
  }
}

/// Throws Failed unless the rank has called `operations` so far.
void require_calls(const Collectives& collectives, int rank, const std::vector<std::string>& operations,
                   const std::string& what) {
  std::vector<std::string> calls;
  for (const CommunicatorCall& call : collectives.calls_of(rank)) {
    calls.push_back(call.operation);
  }
  if (calls != operations) {
    throw Failed(fmt::format("{} on rank {}: {}{}", what, rank, fmt::join(operations, ", "), for_case()),
                 calls.empty() ? "no call" : fmt::format("{}", fmt::join(calls, ", ")), kUnit);
  }
}

Values gradient_of(const Size& size, int rank, int microbatch) {
  return numbers(size.count(), fmt::format("unit gradient {} of {}", microbatch, rank));
}

/// Sets the gradients of the parameters, as a backward does.
void set_gradients(lab::Unit& unit, const Values& values, Device device) {
  auto next = values.begin();
  for (Tensor& parameter : unit.parameters) {
    const auto end = next + static_cast<std::ptrdiff_t>(parameter.numel());
    parameter.set_grad(Tensor::from(Values(next, end), parameter.shape(), device));
    next = end;
  }
}

Values sum_over_ranks(const Size& size, int microbatch) {
  std::vector<Values> all;
  for (int rank = 0; rank < ranks(); ++rank) {
    all.push_back(gradient_of(size, rank, microbatch));
  }
  return sum_of(all);
}

}  // namespace

void weights_come_and_go(const Answer& answer) {
  for_each_unit([&](const Size& size, lab::Unit& unit, Communicator& comm, const Collectives& collectives) {
    const Values first = numbers(size.count(), "first weights");
    set_shard(unit, first, comm);
    answer.gather(unit, comm);
    require_whole(unit, first, fmt::format("after gather on rank {}", comm.rank()));
    answer.gather(unit, comm);
    require_calls(collectives, comm.rank(), {"all_gather_into"}, "the calls of gather, and of gather once more");
    const std::size_t with_weights = bytes_in_use(comm);
    answer.free_weights(unit);
    for (const Tensor& parameter : unit.parameters) {
      if (has_memory(parameter)) {
        throw Failed("no memory of the parameters after free_weights" + for_case(), "they still have elements",
                     kMemory);
      }
    }
    const auto bytes = static_cast<std::size_t>(size.count()) * sizeof(float);
    if (const std::size_t after = bytes_in_use(comm); after + bytes > with_weights + kSlack) {
      throw Failed(fmt::format("{} bytes fewer in use after free_weights than before it{}", bytes, for_case()),
                   fmt::format("{} before it, {} after it", with_weights, after), kMemory);
    }
    const Values second = numbers(size.count(), "second weights");
    set_shard(unit, second, comm);
    answer.gather(unit, comm);
    require_whole(unit, second, fmt::format("after an update and another gather on rank {}", comm.rank()));
  });
}

void graph_uses_them_again(const Answer& answer) {
  for_each_unit([&](const Size& size, lab::Unit& unit, Communicator& comm, const Collectives& /*collectives*/) {
    const Shape shape{3, size.inputs};
    Tensor x = Tensor::from(numbers(shape.numel(), "x"), shape, comm.device());
    x.set_requires_grad(true);
    const Tensor upstream = Tensor::from(numbers(3 * size.outputs, "upstream"), {3, size.outputs}, comm.device());
    answer.gather(unit, comm);
    const Tensor y = unit.layers->forward(x);
    answer.free_weights(unit);
    answer.gather(unit, comm);
    backward(y, upstream);
    const Values gradient = x.grad().to_vector<float>();
    x.zero_grad();
    backward(unit.layers->forward(x), upstream);  // without a pause
    require_equal(x.grad().to_vector<float>(), Tensor::from(gradient, shape),
                  fmt::format("the gradient of x by the graph from before, on rank {}", comm.rank()), kMemory);
  });
}

void reduce_adds_sums(const Answer& answer) {
  for_each_unit([&](const Size& size, lab::Unit& unit, Communicator& comm, const Collectives& collectives) {
    Values total;
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const Values sum = part_of(sum_over_ranks(size, microbatch), comm.rank(), comm.size());
      const Values own = part_of(gradient_of(size, comm.rank(), microbatch), comm.rank(), comm.size());
      Mistakes mistakes{{own, "the gradient of this rank only"},
                        {scaled(sum, 1 / static_cast<float>(comm.size())), "the mean over the ranks, not the sum"}};
      if (microbatch > 0) {
        mistakes.emplace_back(sum, "that of the last micro-batch only: reduce adds to what is there");
      }
      total = microbatch == 0 ? sum : sum_of({total, sum});
      set_gradients(unit, gradient_of(size, comm.rank(), microbatch), comm.device());
      poison(unit.weights.numel(), comm.device());
      answer.reduce(unit, comm);
      require_equal(total, unit.gradient,
                    fmt::format("the gradient of rank {}'s shard, summed over the ranks, after {} micro-batch{}",
                                comm.rank(), microbatch + 1, microbatch == 0 ? "" : "es"),
                    kUnit, mistakes);
    }
    require_calls(collectives, comm.rank(), {"reduce_scatter", "reduce_scatter"}, "the calls of two reductions");
  });
}

void reduce_frees_gradients(const Answer& answer) {
  for_each_unit([&](const Size& size, lab::Unit& unit, Communicator& comm, const Collectives& /*collectives*/) {
    const std::size_t before = bytes_in_use(comm);
    set_gradients(unit, gradient_of(size, comm.rank(), 0), comm.device());
    answer.reduce(unit, comm);
    for (const Tensor& parameter : unit.parameters) {
      if (parameter.grad().defined()) {
        throw Failed("no parameter with a gradient after reduce" + for_case(),
                     fmt::format("that of {} has one: zero_grad() takes it away", describe(parameter)), kMemory);
      }
    }
    const std::size_t expected = unit.shard.bytes();
    if (const std::size_t more = bytes_in_use(comm) - before; more > expected + kSlack) {
      throw Failed(
          fmt::format("{} bytes more in use after reduce than before the backward, the gradient of the shard{}",
                      expected, for_case()),
          fmt::format("{} bytes", more), kMemory);
    }
  });
}

}  // namespace stagecoach::labs::lab9
