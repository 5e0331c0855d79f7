// Remote calls: modules on workers train what one device trains, bit for bit, and errors reach the master. Ranks are
// threads, or the processes of mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/pipeline/split.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_labels;
using test::random_tensor;
using test::same_bytes;
using test::unless_sanitized;

constexpr std::int64_t kImages = 6;
constexpr std::uint64_t kSeed = 5;

struct Task {
  const char* name;
  const char* model;
  std::int64_t image_size;
  int front_layers;
  MakeOptimizer optimizer;
  Tensor images(int step) const {
    return random_tensor({kImages, 3, image_size, image_size}, fmt::format("images {}", step), DType::float32);
  }
};
void PrintTo(const Task& task, std::ostream* out) { *out << task.name; }

/// The two halves of the task's model, and its optimizer.
RemoteTable table_of(const Task& task) {
  const auto half = [task](std::size_t which) {
    return [task, which](Device device) -> std::shared_ptr<Module> {
      const auto model = make_model(task.model);
      const auto part = stages_of(*model, {task.front_layers, model->size() - task.front_layers})[which];
      part->materialize(kSeed, device);
      return part;
    };
  };
  return {.modules = {{"front", half(0)}, {"back", half(1)}}, .optimizers = {{"optimizer", task.optimizer}}};
}

constexpr int kSteps = 2;

/// One device that computes the loss of each whole batch from the outputs of `microbatches` micro-batches.
NamedTensors on_one_device(const Task& task, int microbatches) {
  const auto model = make_model(task.model);
  model->materialize(kSeed);
  const auto optimizer = task.optimizer(model->named_parameters());
  for (int step = 0; step < kSteps; ++step) {
    const auto images = micro_batches(task.images(step), microbatches);
    const auto labels = micro_batches(random_labels(kImages, 10), microbatches);
    for (std::size_t i = 0; i < images.size(); ++i) {
      backward(cross_entropy(model->forward(images[i]), labels[i], Reduction::sum), Tensor::full({}, 1.0 / kImages));
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  return model->named_parameters();
}

/// The master's program: the same by remote calls.
NamedTensors by_remote_calls(const Task& task, int microbatches, Master& master) {
  const RemoteModule front = master.remote(1, "front");
  const RemoteModule back = master.remote(master.workers(), "back");
  std::vector<RRef> parameters = front.parameters();
  for (const RRef& parameter : back.parameters()) {
    parameters.push_back(parameter);
  }
  DistributedOptimizer optimizer(master, "optimizer", parameters);
  for (int step = 0; step < kSteps; ++step) {
    DistributedContext context(master);
    std::vector<Future> futures;
    for (const Tensor& images : micro_batches(task.images(step), microbatches)) {
      futures.push_back(back.forward(front.forward(images)).fetch());
    }
    std::vector<Tensor> outputs;
    for (Future& future : futures) {
      outputs.push_back(future.wait());
    }
    const Tensor loss = cross_entropy(cat(outputs), random_labels(kImages, 10), Reduction::sum);
    context.backward(loss, Tensor::full({}, 1.0 / kImages));
    optimizer.step(context);
  }
  std::vector<std::string> names = front.parameter_names();
  for (const std::string& name : back.parameter_names()) {
    names.push_back(name);
  }
  NamedTensors trained;
  for (std::size_t i = 0; i < names.size(); ++i) {
    trained.emplace_back(names[i], parameters[i].to_here());
  }
  return trained;
}

std::vector<Task> tasks() {
  const Task convnet{"ConvnetSgd", "convnet", 32, 6, sgd({.momentum = 0.9})};
  return unless_sanitized<std::vector<Task>>({convnet,
                                              {"ConvnetAdam", "convnet", 32, 6, adam()},
                                              {"Resnet18Sgd", "resnet18", 16, 6, sgd({.momentum = 0.9})},
                                              {"Resnet18Adam", "resnet18", 16, 6, adam()}},
                                             {convnet});
}

/// The numbers of micro-batches.
std::vector<int> splits() {
  return test::ranks_are_processes() ? std::vector{3} : unless_sanitized<std::vector<int>>({1, 3}, {3});
}

class Rpc : public ::testing::TestWithParam<Task> {};
INSTANTIATE_TEST_SUITE_P(Models, Rpc, ::testing::ValuesIn(tasks()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Rpc, TrainsWhatOneDeviceTrains) {
  for (const int ranks : {2, 3}) {  // both halves on one worker, or each on its own
    if (!test::has_ranks(ranks)) {
      continue;
    }
    for (const int microbatches : splits()) {
      SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches", ranks, microbatches));
      run_with_master(test::world_of(ranks), table_of(GetParam()), [&](Master& master) {
        const NamedTensors wanted = on_one_device(GetParam(), microbatches);
        const NamedTensors got = by_remote_calls(GetParam(), microbatches, master);
        ASSERT_EQ(wanted.size(), got.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(wanted[i].first, got[i].first);
          EXPECT_TRUE(same_bytes(wanted[i].second, got[i].second)) << got[i].first;
        }
      });
    }
  }
}

std::atomic<int> calls_done = 0;  // of the function "sleep"

/// A layer of 4 numbers, functions, and things that fail.
RemoteTable small_table() {
  return {.modules = {{"linear",
                       [](Device device) {
                         auto module = std::make_shared<Linear>(4, 4);
                         module->materialize(kSeed, device);
                         return module;
                       }},
                      {"broken", [](Device) -> std::shared_ptr<Module> { throw Error("it cannot be made"); }},
                      {"null", [](Device) -> std::shared_ptr<Module> { return nullptr; }},
                      {"elsewhere",
                       [](Device) {
                         auto module = std::make_shared<Linear>(4, 4);
                         module->materialize(kSeed, Device{DeviceType::cpu, 0});
                         return module;
                       }}},
          .optimizers = {{"sgd", sgd()}, {"null", [](NamedTensors) { return std::unique_ptr<Optimizer>(); }}},
          .functions = {
              {"sum", [](const std::vector<Tensor>& x) { return add(x.at(0), x.at(1)); }},
              {"fail", [](const std::vector<Tensor>&) -> Tensor { throw Error("the function has failed"); }},
              {"elsewhere", [](const std::vector<Tensor>&) { return Tensor::zeros({2}, DType::float32, Device{}); }},
              {"sleep",
               [](const std::vector<Tensor>&) {
                 std::this_thread::sleep_for(std::chrono::milliseconds(5));
                 ++calls_done;
                 return Tensor();
               }},
              {"nothing", [](const std::vector<Tensor>&) { return Tensor(); }}}};
}

/// Runs `body` as the master of two workers, or of the other processes.
void with_workers(const std::function<void(Master&)>& body, double timeout = 30) {
  World world = test::world_of(test::ranks_are_processes() ? launch_environment()->size : 3);
  world.timeout = timeout;
  run_with_master(world, small_table(), body);
}

Tensor loss_of(const Tensor& y) { return mean_squared_error(y, Tensor::zeros(y.shape())); }

TEST(RpcCalls, ReturnWhatTheFunctionReturns) {
  with_workers([](Master& master) {
    const Tensor x = random_tensor({3, 4}, "x", DType::float32);
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", {x, x}), add(x, x)));
    EXPECT_FALSE(master.rpc_sync(1, "nothing").defined());
    std::vector<Future> futures;
    for (int i = 0; i < 100; ++i) {
      futures.push_back(master.rpc_async(1 + i % master.workers(), "sum", {x, Tensor::full({3, 4}, i)}));
    }
    for (int i = 99; i >= 0; --i) {  // in any order
      EXPECT_TRUE(same_bytes(futures[static_cast<std::size_t>(i)].wait(), add(x, Tensor::full({3, 4}, i))));
    }
    EXPECT_TRUE(same_bytes(master.put(1, x).to_here(), x));
    EXPECT_EQ(master.remote(1, "linear").parameter_names(), (std::vector<std::string>{"weight", "bias"}));
  });
}

TEST(RpcCalls, ThatFailLeaveTheWorkerAlive) {
  with_workers([](Master& master) {
    const int last = master.workers();
    const std::string rank = fmt::format("rank {}: ", last);
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "function 'fail': the function has failed"},
                                        [&] { master.rpc_sync(last, "fail"); }));
    EXPECT_TRUE(fails_with<RemoteError>(
        {rank.c_str(), "no function is named 'none': expected one of [elsewhere, fail, nothing, sleep, sum]"},
        [&] { master.rpc_sync(last, "none"); }));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "making module 'broken': it cannot be made"},
                                        [&] { master.remote(last, "broken"); }));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "no module is named"}, [&] { master.remote(last, "none"); }));
    EXPECT_TRUE(fails_with<UsageError>({"remote call to rank 9: expected a worker, from 1 to"},
                                       [&] { master.remote(9, "linear"); }));
    EXPECT_TRUE(fails_with<UsageError>({"rank 0 is the master"}, [&] { master.rpc_sync(0, "sum"); }));

    const RemoteModule linear = master.remote(last, "linear");
    const Tensor x = Tensor::zeros({2, 4});
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "forward of 'linear'", "[2, 5]"}, [&] {
      linear.forward(Tensor::zeros({2, 5})).to_here();
    }));
    // What is computed from a failed value has its error, on other workers too.
    const RemoteModule other = master.remote(1, "linear");
    const RRef failed = linear.forward(Tensor::zeros({2, 5}));
    EXPECT_TRUE(
        fails_with<RemoteError>({rank.c_str(), "forward of 'linear'"}, [&] { other.forward(failed).to_here(); }));
    EXPECT_EQ(linear.forward(x).to_here().shape(), (Shape{2, 4}));
  });
}

TEST(RpcCalls, OfARankThatIsNoWorkerAreRefused) {
  with_workers([](Master& master) {
    const Tensor x = Tensor::zeros({2, 4});
    for (const int rank : {-1, 0, 9}) {
      const auto refuses = [&](const auto& call) { return fails_with<UsageError>({"expected a worker"}, call); };
      EXPECT_TRUE(refuses([&] { master.put(rank, x); }));
      EXPECT_TRUE(refuses([&] { master.rpc_sync(rank, "sum", {x, x}); }));
      EXPECT_TRUE(refuses([&] { master.rpc_async(rank, "nothing"); }));
    }
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", {x, x}), x));
  });
}

TEST(RpcCalls, AnUndefinedTensorIsRefusedBeforeTheWorkerWaitsForIt) {
  with_workers([](Master& master) {
    EXPECT_TRUE(fails_with<Error>({"remote call to rank 1: expected a tensor"}, [&] { master.put(1, Tensor()); }));
    const Tensor x = Tensor::full({2, 4}, 1);
    EXPECT_TRUE(fails_with<Error>({"expected a tensor"}, [&] { master.rpc_sync(1, "sum", {x, Tensor()}); }));
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", {x, x}), add(x, x)));
  });
}

TEST(RpcCalls, ThatReturnWhatCannotBeSentLeaveTheWorkerAlive) {
  with_workers([](Master& master) {
    EXPECT_TRUE(
        fails_with<RemoteError>({"rank 1: function 'elsewhere': the result is on", "expected the worker's device"},
                                [&] { master.rpc_sync(1, "elsewhere"); }));
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: making module 'elsewhere': parameter 'weight' is on"},
                                        [&] { master.remote(1, "elsewhere"); }));
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: making module 'null': the factory returned null"},
                                        [&] { master.remote(1, "null"); }));
    const RemoteModule linear = master.remote(1, "linear");
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: making optimizer 'null': the factory returned null"},
                                        [&] { DistributedOptimizer(master, "null", linear.parameters()); }));
    EXPECT_EQ(linear.forward(Tensor::zeros({2, 4})).to_here().shape(), (Shape{2, 4}));
  });
}

TEST(RpcCalls, EndAfterShutDownWhichMayBeCalledTwice) {
  with_workers([](Master& master) {
    master.shut_down();
    EXPECT_TRUE(fails_with<Error>({"the workers have been shut down"}, [&] { master.put(1, Tensor::zeros({2})); }));
    master.shut_down();
  });
}

TEST(RpcAutograd, AFutureMayOutliveItsContext) {
  with_workers([](Master& master) {
    const RemoteModule linear = master.remote(1, "linear");
    std::vector<Future> futures;
    {
      auto context = std::make_unique<DistributedContext>(master);
      futures.push_back(linear.forward(Tensor::zeros({2, 4})).fetch());
    }
    EXPECT_FALSE(futures[0].wait().requires_grad());
    const DistributedContext next(master);
    EXPECT_FALSE(futures[0].wait().requires_grad());
    EXPECT_TRUE(linear.forward(Tensor::zeros({2, 4})).to_here().requires_grad());
  });
}

TEST(RpcAutograd, AnErrorOnOneWorkerStepsNone) {
  with_workers([](Master& master) {
    const int last = master.workers();
    const RemoteModule front = master.remote(1, "linear");
    const RemoteModule back = master.remote(last, "linear");
    std::vector<RRef> parameters = front.parameters();
    const std::vector<RRef> more = back.parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].to_here();
    const Tensor x = Tensor::full({2, 4}, 1);
    const std::string rank = fmt::format("rank {}: forward of 'linear'", last);
    {
      DistributedContext context(master);
      const Tensor y = back.forward(front.forward(x)).to_here();
      const RRef failed = back.forward(Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { optimizer.step(context); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].to_here(), before));
  });
}

TEST(RpcAutograd, RefusesAStepAfterACallThatThrew) {
  with_workers([](Master& master) {
    const RemoteModule linear = master.remote(1, "linear");
    const std::vector<RRef> parameters = linear.parameters();
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].to_here();
    {
      DistributedContext context(master);
      const Tensor y = linear.forward(Tensor::full({2, 4}, 1)).to_here();
      const RRef failed = linear.forward(Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: forward of 'linear'"}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: forward of 'linear'"}, [&] { optimizer.step(context); }));
      EXPECT_TRUE(fails_with<Error>({"there is a context already"}, [&] { DistributedContext second(master); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].to_here(), before));
    DistributedContext context(master);
    context.backward(loss_of(linear.forward(Tensor::full({2, 4}, 1)).to_here()));
    optimizer.step(context);
    EXPECT_FALSE(same_bytes(parameters[0].to_here(), before));
    EXPECT_TRUE(fails_with<RemoteError>({"no optimizer is named 'none'"},
                                        [&] { DistributedOptimizer none(master, "none", parameters); }));
  });
}

TEST(RpcAutograd, RefusesAnOutputThatIsUsedTwice) {
  with_workers([](Master& master) {
    const RemoteModule linear = master.remote(1, "linear");
    DistributedContext context(master);
    const RRef y = linear.forward(Tensor::full({2, 4}, 1));
    const Tensor a = linear.forward(y).to_here();
    const Tensor b = linear.forward(y).to_here();
    EXPECT_TRUE(fails_with<Error>({"used by 2 other modules"}, [&] { context.backward(loss_of(add(a, b))); }));
    DistributedOptimizer optimizer(master, "sgd", linear.parameters());
    EXPECT_TRUE(fails_with<Error>({"the context has no gradients"}, [&] { optimizer.step(context); }));
  });
}

TEST(RpcCalls, WhoseAnswersNobodyReadsAreBounded) {
  STAGECOACH_NEEDS_THREADS();
  calls_done = 0;
  with_workers([](Master& master) {
    for (int i = 0; i < 300; ++i) {
      static_cast<void>(master.rpc_async(1, "sleep"));
    }
    EXPECT_GE(calls_done, 300 - 130);  // the master has waited for the earlier ones
  });
}

TEST(RpcCalls, OfOneWorkerMayTakeLongerThanTheTimeoutWhileAnotherIsIdle) {
  STAGECOACH_NEEDS_THREADS();
  with_workers(
      [](Master& master) {
        for (int i = 0; i < 300; ++i) {  // 1.5 s
          master.rpc_sync(1, "sleep");
        }
        EXPECT_FALSE(master.rpc_sync(2, "nothing").defined());
      },
      1);
}

TEST(RpcFailures, OfTheMasterEndTheWorkers) {
  STAGECOACH_NEEDS_THREADS();
  EXPECT_TRUE(fails_with<Error>({"rank 0: the master has failed"},
                                [] { with_workers([](Master&) { throw Error("the master has failed"); }); }));
  EXPECT_TRUE(fails_with<UsageError>({"at least 2 ranks, got 1"},
                                     [] { run_with_master({.ranks = 1}, small_table(), [](Master&) {}); }));
}

TEST(RpcFailures, AMasterThatIsSilentEndsTheWorkers) {
  STAGECOACH_NEEDS_THREADS();
  EXPECT_TRUE(fails_with<CommError>({"receive from rank 0", "in the service of remote calls"}, [] {
    with_workers([](Master&) { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }, 0.1);
  }));
}

}  // namespace
}  // namespace stagecoach
