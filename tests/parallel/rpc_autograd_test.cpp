// Distributed autograd over graphs of calls: what one device computes, bit for bit. Ranks are threads, or the processes
// of mpirun.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

constexpr int kMicroBatches = 3;
constexpr double kRate = 0.1;

std::shared_ptr<Linear> seeded_linear(Device device, int seed) {
  auto module = std::make_shared<Linear>(4, 4);
  module->materialize(static_cast<std::uint64_t>(seed), device);
  return module;
}
/// Uses its first argument twice.
Tensor mixed(const Tensor& a, const Tensor& b) { return add(scale(relu(a), 0.7), add(a, b)); }
Tensor microbatch(int i) { return random_tensor({5, 4}, std::to_string(i), DType::float32); }
Tensor squares(const Tensor& y) { return mean_squared_error(y, Tensor::zeros(y.shape())); }

RemoteTable graph_table() {
  RemoteTable table;
  table.add_class("linear", seeded_linear);
  table.add_class("sgd", [](NamedTensors parameters, double rate) {
    return std::make_unique<Sgd>(std::move(parameters), SgdSettings{.learning_rate = rate});
  });
  table.add_function("sum", [](const Tensor& a, const Tensor& b) { return add(a, b); });
  table.add_function("mixed", mixed);
  table.add_function("argmax", [](const Tensor& x) { return Tensor::zeros({x.size(0)}, DType::int32, x.device()); });
  table.add_function("fail", [](const Tensor&) -> Tensor { throw Error("it has failed"); });
  return table;
}

void with_graph_workers(const std::function<void(Master&)>& body) {
  run_with_master(test::world_of(test::ranks_are_processes() ? launch_environment()->size : 3), graph_table(), body);
}

/// Two layers on workers, with an optimizer.
struct RemoteLayers {
  explicit RemoteLayers(Master& master)
      : front(master.remote(1, "linear", 1)),
        back(master.remote(master.workers(), "linear", 2)),
        parameters(front.list("named_parameters")) {
    const NamedRRefs more = back.list("named_parameters");
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  void step(Master& master, const DistributedContext& context) const {
    DistributedOptimizer(master, "sgd", parameters, kRate).step(context);
  }
  RRef front;
  RRef back;
  NamedRRefs parameters;
};

/// The same layers on one device.
struct LocalLayers {
  std::shared_ptr<Linear> front = seeded_linear(Device{}, 1);
  std::shared_ptr<Linear> back = seeded_linear(Device{}, 2);
  /// Steps, and returns the parameters.
  std::vector<Tensor> stepped() const {
    std::vector<Tensor> all;
    for (const auto& module : {front, back}) {
      Sgd(module->named_parameters(), {.learning_rate = kRate}).step();
      for (const auto& [name, parameter] : module->named_parameters()) {
        all.push_back(parameter);
      }
    }
    return all;
  }
};

void expect_parameters(const RemoteLayers& remote, const std::vector<Tensor>& wanted) {
  const NamedTensors got = to_here(remote.parameters);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same_bytes(got[i].second, wanted[i])) << i << " " << got[i].first;
  }
}

// y has five uses: two in one call, and one by the master. Another order of the sum has other bits.
TEST(RpcGraphs, AnOutputMayBeUsedMoreThanOnce) {
  const LocalLayers local;
  for (int i = 0; i < kMicroBatches; ++i) {
    const Tensor y = local.front->forward(microbatch(i));
    const Tensor a = local.back->forward(y);
    const Tensor b = mixed(y, a);
    const Tensor c = local.back->forward(y);
    backward(add(squares(add(b, c)), squares(y)));
  }
  const std::vector<Tensor> wanted = local.stepped();
  with_graph_workers([&](Master& master) {
    const RemoteLayers remote(master);
    DistributedContext context(master);
    Tensor loss = Tensor::zeros({});
    for (int i = 0; i < kMicroBatches; ++i) {
      const RRef y = remote.front.remote("forward", microbatch(i));
      const RRef a = remote.back.remote("forward", y);
      const RRef b = master.remote("worker1", "mixed", y, a);
      const RRef c = remote.back.remote("forward", y);
      loss = add(loss, add(squares(master.rpc_sync(master.workers(), "sum", b, c)), squares(y.to_here())));
    }
    context.backward(loss);
    remote.step(master, context);
    expect_parameters(remote, wanted);
  });
}

TEST(RpcGraphs, OneArgumentMayBePassedTwice) {
  const LocalLayers local;
  const Tensor y = local.front->forward(microbatch(0));
  backward(squares(mixed(y, y)));
  const std::vector<Tensor> wanted = local.stepped();
  with_graph_workers([&](Master& master) {
    const RemoteLayers remote(master);
    DistributedContext context(master);
    const RRef there = remote.front.remote("forward", microbatch(0));
    context.backward(squares(master.rpc_sync(master.workers(), "mixed", there, there)));
    remote.step(master, context);
    EXPECT_TRUE(same_bytes(to_here(remote.parameters)[0].second, wanted[0]));
    EXPECT_TRUE(same_bytes(to_here(remote.parameters)[1].second, wanted[1]));
  });
}

// The master's own layers are before, between and after calls, and one of its leaves is an argument.
TEST(RpcGraphs, TensorsOfTheMasterGetTheirGradients) {
  const auto first = seeded_linear(Device{}, 3);
  const auto middle = seeded_linear(Device{}, 4);
  const Tensor leaf = random_leaf({5, 4}, "leaf", DType::float32);
  const std::vector<Tensor> own{first->named_parameters()[0].second, first->named_parameters()[1].second,
                                middle->named_parameters()[0].second, middle->named_parameters()[1].second, leaf};
  const LocalLayers local;
  for (int i = 0; i < kMicroBatches; ++i) {
    const Tensor h = first->forward(microbatch(i));
    const Tensor y = local.front->forward(h);
    const Tensor z = local.back->forward(middle->forward(relu(y)));
    backward(squares(add(mixed(h, z), add(y, leaf))));
  }
  const std::vector<Tensor> wanted = local.stepped();
  std::vector<Tensor> gradients;
  for (const Tensor& tensor : own) {
    gradients.push_back(take_gradient(tensor));
  }
  with_graph_workers([&](Master& master) {
    const RemoteLayers remote(master);
    DistributedContext context(master);
    Tensor loss = Tensor::zeros({});
    for (int i = 0; i < kMicroBatches; ++i) {
      const Tensor h = first->forward(microbatch(i));
      const RRef y = remote.front.remote("forward", h);
      const RRef z = remote.back.remote("forward", middle->forward(relu(y.to_here())));
      const RRef m = master.remote(1, "mixed", h, z);
      loss = add(loss, squares(master.rpc_sync(1, "sum", m, master.remote(1, "sum", y, leaf))));
    }
    context.backward(loss);
    remote.step(master, context);
    expect_parameters(remote, wanted);
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_TRUE(same_bytes(own[i].grad(), gradients[i])) << i;
    }
  });
}

// Each context steps as if the other one did not exist; the output of one is a constant to the other.
TEST(RpcGraphs, SeveralContextsDoNotDisturbEachOther) {
  const LocalLayers local;
  const Tensor y = local.front->forward(microbatch(0));
  const Tensor of_b = squares(local.back->forward(y.detach()));
  backward(squares(local.back->forward(y)));
  std::vector<Tensor> gradients_of_a;
  for (const auto& [name, parameter] : local.back->named_parameters()) {
    gradients_of_a.push_back(take_gradient(parameter));
  }
  backward(of_b);
  Sgd(local.back->named_parameters(), {.learning_rate = kRate}).step();
  for (std::size_t i = 0; i < gradients_of_a.size(); ++i) {
    Tensor(local.back->named_parameters()[i].second).set_grad(gradients_of_a[i]);
  }
  const std::vector<Tensor> wanted = local.stepped();
  with_graph_workers([&](Master& master) {
    const RemoteLayers remote(master);
    DistributedContext a(master);
    const RRef there = remote.front.remote("forward", microbatch(0));
    DistributedContext b(master);
    const Tensor constant_before = remote.back.rpc_sync("forward", there);
    a.record_next();
    const Tensor z = remote.back.rpc_sync("forward", there);
    b.backward(squares(constant_before));
    a.backward(squares(z));
    remote.step(master, b);
    remote.step(master, a);
    expect_parameters(remote, wanted);
  });
}

TEST(RpcGraphs, NumbersAndIntegersHaveNoGradient) {
  with_graph_workers([](Master& master) {
    const RemoteLayers remote(master);
    DistributedContext context(master);
    const RRef y = remote.front.remote("forward", microbatch(0));
    const RRef classes = master.remote(1, "argmax", y);
    EXPECT_FALSE(master.remote(1, "argmax", classes).to_here().requires_grad());
    const Tensor here = y.to_here();
    context.backward(squares(here));
    const NoGrad no_grad;  // what is called under it is not recorded
    EXPECT_FALSE(remote.front.rpc_sync("forward", microbatch(1)).requires_grad());
  });
}

TEST(RpcGraphs, AnErrorReachesTheMastersOwnTensors) {
  with_graph_workers([](Master& master) {
    DistributedContext context(master);
    const Tensor leaf = random_leaf({5, 4}, "leaf", DType::float32);
    const RRef failed = master.remote(1, "fail", leaf);
    const RRef y = master.remote(master.workers(), "sum", leaf, leaf);
    EXPECT_TRUE(test::fails_with<RemoteError>({"call of 'fail': it has failed"},
                                              [&] { context.backward(squares(y.to_here())); }));
  });
}

}  // namespace
}  // namespace stagecoach
