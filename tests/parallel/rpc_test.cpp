// Remote calls: what they return, what they leave behind, and what happens when they fail. Ranks are threads, or the
// processes of mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "nn/layers.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"
#include "parallel/rpc/remote_sequential.h"
#include "parallel/rpc/worker.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

constexpr std::uint64_t kRemoteSeed = 5;

std::atomic<int> calls_done = 0;  // of the function "sleep"

/// A layer of 4 numbers, functions, and things that fail.
RemoteTable small_table() {
  return {.modules = {{"linear",
                       [](Device device) {
                         auto module = std::make_shared<Linear>(4, 4);
                         module->materialize(kRemoteSeed, device);
                         return module;
                       }},
                      {"broken", [](Device) -> std::shared_ptr<Module> { throw Error("it cannot be made"); }},
                      {"null", [](Device) -> std::shared_ptr<Module> { return nullptr; }},
                      {"elsewhere",
                       [](Device) {
                         auto module = std::make_shared<Linear>(4, 4);
                         module->materialize(kRemoteSeed, Device{DeviceType::cpu, 0});
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
              {"sleep for seconds",
               [](const std::vector<Tensor>& x) {
                 std::this_thread::sleep_for(std::chrono::duration<double>(x.at(0).item()));
                 return x[0];
               }},
              {"count",  // writes to the tensor that it returns
               [counter = std::make_shared<Tensor>()](const std::vector<Tensor>& x) {
                 *counter = counter->defined() ? *counter : x.at(0).clone();
                 counter->mutable_data<float>()[0] += 1;
                 return *counter;
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
    const NamedRRefs parameters = master.remote(1, "linear").named_parameters();
    ASSERT_EQ(parameters.size(), 2U);
    EXPECT_EQ(parameters[0].first, "weight");
    EXPECT_EQ(parameters[1].first, "bias");
  });
}

TEST(RpcCalls, ThatFailLeaveTheWorkerAlive) {
  with_workers([](Master& master) {
    const int last = master.workers();
    const std::string rank = fmt::format("rank {}: ", last);
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "function 'fail': the function has failed"},
                                        [&] { master.rpc_sync(last, "fail"); }));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(),
                                         "no function is named 'none': expected one of [count, elsewhere, fail, "
                                         "nothing, sleep, sleep for seconds, sum]"},
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
                                        [&] { DistributedOptimizer(master, "null", linear.named_parameters()); }));
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
    const NamedRRefs parameters = RemoteSequential({front, back}).named_parameters();
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].second.to_here();
    const Tensor x = Tensor::full({2, 4}, 1);
    const std::string rank = fmt::format("rank {}: forward of 'linear'", last);
    {
      DistributedContext context(master);
      const Tensor y = back.forward(front.forward(x)).to_here();
      const RRef failed = back.forward(Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { optimizer.step(context); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].second.to_here(), before));
  });
}

TEST(RpcAutograd, RefusesAStepAfterACallThatThrew) {
  with_workers([](Master& master) {
    const RemoteModule linear = master.remote(1, "linear");
    const NamedRRefs parameters = linear.named_parameters();
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].second.to_here();
    {
      DistributedContext context(master);
      const Tensor y = linear.forward(Tensor::full({2, 4}, 1)).to_here();
      const RRef failed = linear.forward(Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: forward of 'linear'"}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: forward of 'linear'"}, [&] { optimizer.step(context); }));
      EXPECT_TRUE(fails_with<Error>({"there is a context already"}, [&] { DistributedContext second(master); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].second.to_here(), before));
    DistributedContext context(master);
    context.backward(loss_of(linear.forward(Tensor::full({2, 4}, 1)).to_here()));
    optimizer.step(context);
    EXPECT_FALSE(same_bytes(parameters[0].second.to_here(), before));
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
    DistributedOptimizer optimizer(master, "sgd", linear.named_parameters());
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

// While it computes, also other ranks wait: the master for it, worker 2 for its output, or with nothing to do.
TEST(RpcCalls, MayTakeLongerThanTheTimeout) {
  const double timeout = test::ranks_are_processes() ? 1 : 0.4;  // processes must start within it
  const Tensor seconds = Tensor::full({}, 1.5 * timeout);
  with_workers(
      [&](Master& master) {
        EXPECT_EQ(master.rpc_sync(1, "sleep for seconds", {seconds}).item(), seconds.item());
        std::vector<Future> behind;  // an answer behind calls that take longer together
        for (int i = 0; i < 3; ++i) {
          behind.push_back(master.rpc_async(1, "sleep for seconds", {scale(seconds, 0.5)}));
        }
        EXPECT_EQ(behind[2].wait().item(), scale(seconds, 0.5).item());
        EXPECT_FALSE(master.rpc_sync(master.workers(), "nothing").defined());
        static_cast<void>(master.rpc_async(master.workers(), "sleep for seconds", {seconds}));  // at the end, too
      },
      timeout);
}

TEST(RpcCalls, OfAWorkerMayWaitLongForTheValueOfAnother) {
  STAGECOACH_NEEDS_THREADS();
  RemoteTable table = small_table();
  class Slow : public Module {
   public:
    Tensor forward(const Tensor& x) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      return x;
    }
    Shape output_shape(const Shape& input) const override { return input; }
  };
  table.modules["slow"] = [](Device) { return std::make_shared<Slow>(); };
  run_with_master({.ranks = 4, .timeout = 0.3}, table, [](Master& master) {
    const RemoteModule slow = master.remote(1, "slow");
    const RemoteModule linear = master.remote(2, "linear");
    EXPECT_EQ(linear.forward(slow.forward(Tensor::zeros({2, 4}))).to_here().shape(), (Shape{2, 4}));
    EXPECT_FALSE(master.rpc_sync(3, "nothing").defined());
  });
}

// Counted in bytes: a short message has kMessageBytes, whatever is in it.
TEST(RpcCalls, AreOneMessageEachWay) {
  constexpr int kCalls = 10;
  const RemoteTable table = small_table();
  World world = test::world_of(test::ranks_are_processes() ? launch_environment()->size : 2);
  constexpr double kMessage = rpc::kMessageBytes;
  launch(world, [&](Rank& rank) {
    if (rank.index > 0) {
      rpc::serve_master(table, rank.comm, world.timeout);
      EXPECT_EQ(rank.comm.bytes_sent()[0], rank.index == 1 ? kCalls * kMessage : 0);
      return;
    }
    Master master(rank.comm, world.timeout);
    const Tensor x = Tensor::full({4}, 1);
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", {x, x}), add(x, x)));
    }
    EXPECT_EQ(rank.comm.bytes_sent()[1], kCalls * kMessage);
    master.shut_down();
  });
}

// Neither arguments nor results stay on the worker, nor copies of them.
TEST(RpcCalls, LeaveNothingOnTheWorker) {
  with_workers([](Master& master) {
    const Tensor x = Tensor::full({1 << 18}, 1);
    const auto bytes = static_cast<double>(x.bytes());
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", {x, x}), add(x, x)));
    const auto peaks = [&] { return master.report(0).peak_bytes + master.report(1).peak_bytes; };
    static_cast<void>(peaks());  // they are measured from here on
    for (int i = 0; i < 20; ++i) {
      static_cast<void>(master.rpc_sync(1, "sum", {x, x}));
    }
    EXPECT_LT(peaks(), 12 * bytes) << "x, and of two calls what is sent and what arrives";
  });
}

// A result goes to the master without a copy only if the worker cannot write to it. It is too long to travel within the
// message of the command, where it would be copied anyway.
TEST(RpcCalls, ReturnWhatWasThereThen) {
  with_workers([](Master& master) {
    std::vector<Future> counts;
    for (int i = 0; i < 20; ++i) {
      counts.push_back(master.rpc_async(1, "count", {Tensor::zeros({1024})}));
    }
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(counts[static_cast<std::size_t>(i)].wait().to_vector<float>()[0], static_cast<float>(i + 1));
    }
  });
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
