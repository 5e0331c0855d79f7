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

#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "nn/batch_position.h"
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

std::shared_ptr<Linear> linear_on(Device device) {
  auto module = std::make_shared<Linear>(4, 4);
  module->materialize(kRemoteSeed, device);
  return module;
}

/// An object that is no module.
struct Counter {
  std::int64_t count = 0;
  std::string name = {};
  std::int64_t add(std::int64_t more) { return count += more; }
  std::string text() const { return fmt::format("{} {}", name, count); }
};

/// A layer of 4 numbers, other classes, functions, and things that fail.
RemoteTable small_table() {
  RemoteTable table;
  table.add_class("linear", linear_on);
  table.add_class("broken", []() -> std::shared_ptr<Module> { throw Error("it cannot be made"); });
  table.add_class("null", []() -> std::shared_ptr<Module> { return nullptr; });
  table.add_class("elsewhere", [] { return linear_on(Device{DeviceType::cpu, 0}); });
  table
      .add_class("Counter",
                 [](std::int64_t start, const std::string& name) {
                   return std::make_shared<Counter>(Counter{start, name});
                 })
      .method("add", &Counter::add)
      .method("text", &Counter::text)
      .method("is even", [](const Counter& counter) { return counter.count % 2 == 0; })
      .method("merge", [](Counter& counter, const std::shared_ptr<Counter>& other) { counter.count += other->count; });
  table.add_class("sgd", sgd());
  table.add_class("sgd with", [](NamedTensors parameters, double rate) {
    return std::make_unique<Sgd>(std::move(parameters), SgdSettings{.learning_rate = rate});
  });
  table.add_class("no optimizer", [](const NamedTensors&) { return std::unique_ptr<Optimizer>(); });
  table.add_function("sum", [](const Tensor& a, const Tensor& b) { return add(a, b); });
  table.add_function("scaled", [](const Tensor& x, double factor) { return scale(x, factor); });
  table.add_function("zeros", [](Device device, int rows) { return Tensor::zeros({rows}, DType::float32, device); });
  table.add_function("position", [] {
    const BatchPosition position = BatchScope::current().value_or(BatchPosition{-1, -1});
    return fmt::format("{} {}", position.step, position.first);
  });
  table.add_function("fail", []() -> Tensor { throw Error("the function has failed"); });
  table.add_function("on another device", [] { return Tensor::zeros({2}, DType::float32, Device{}); });
  table.add_function("sleep", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++calls_done;
  });
  table.add_function("sleep for seconds", [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return seconds;
  });
  table.add_function("count", [counter = std::make_shared<Tensor>()](const Tensor& x) {
    *counter = counter->defined() ? *counter : x.clone();
    counter->mutable_data<float>()[0] += 1;
    return *counter;  // later calls write to it
  });
  table.add_function("nothing", [] {});
  return table;
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
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", x, x), add(x, x)));
    EXPECT_FALSE(master.rpc_sync(1, "nothing").defined());
    std::vector<Future> futures;
    for (int i = 0; i < 100; ++i) {
      futures.push_back(master.rpc_async(1 + i % master.workers(), "sum", x, Tensor::full({3, 4}, i)));
    }
    for (int i = 99; i >= 0; --i) {  // in any order
      EXPECT_TRUE(same_bytes(futures[static_cast<std::size_t>(i)].wait(), add(x, Tensor::full({3, 4}, i))));
    }
    EXPECT_TRUE(same_bytes(master.put(1, x).to_here(), x));
    const NamedRRefs parameters = master.remote(1, "linear").list("named_parameters");
    ASSERT_EQ(parameters.size(), 2U);
    EXPECT_EQ(parameters[0].first, "weight");
    EXPECT_EQ(parameters[1].first, "bias");
  });
}

TEST(RpcCalls, TakeAndReturnValuesOfTheirTypes) {
  with_workers([](Master& master) {
    const Tensor x = random_tensor({3, 4}, "x", DType::float32);
    EXPECT_TRUE(same_bytes(master.rpc_sync("worker1", "scaled", x, 2), scale(x, 2)));  // an integer is a number
    EXPECT_EQ(master.rpc_sync(1, "zeros", 5).shape(), (Shape{5}));
    const RRef counter = master.remote(1, "Counter", 3, "apples");
    EXPECT_EQ(counter.rpc_sync<std::int64_t>("add", 4), 7);
    EXPECT_FALSE(counter.rpc_sync<bool>("is even"));
    const RRef other = master.remote(1, "Counter", -1, "");
    counter.remote("merge", other);
    EXPECT_EQ(counter.rpc_sync<std::string>("text"), "apples 6");
    EXPECT_EQ(counter.rpc_sync<std::int64_t>("add", counter.remote("add", 1)), 14);  // a number by reference
    const NamedTensors copies = master.remote(1, "linear").rpc_sync<NamedTensors>("named_parameters");
    ASSERT_EQ(copies.size(), 2U);
    EXPECT_TRUE(same_bytes(copies[1].second, linear_on(Device{})->named_parameters()[1].second));
  });
}

// So that dropout does not depend on which worker a layer is on.
TEST(RpcCalls, KnowWhichSamplesTheyAreAbout) {
  with_workers([](Master& master) {
    const auto position = [&] { return master.rpc_sync<std::string>(1, "position"); };
    EXPECT_EQ(position(), "-1 -1");
    const BatchScope scope(BatchPosition{3, 300});
    EXPECT_EQ(position(), "3 300");
    const NoGrad no_grad;
    EXPECT_EQ(position(), "3 300");
  });
}

TEST(RpcCalls, WithWrongArgumentsSayWhichIsExpected) {
  with_workers([](Master& master) {
    const Tensor x = Tensor::zeros({2});
    const auto fails = [](const char* text, const auto& call) { return fails_with<RemoteError>({text}, call); };
    EXPECT_TRUE(fails("call of 'sum': expected 2 arguments, got 1", [&] { master.rpc_sync(1, "sum", x); }));
    EXPECT_TRUE(
        fails("call of 'sum': argument 2: expected a tensor, got a text", [&] { master.rpc_sync(1, "sum", x, "x"); }));
    EXPECT_TRUE(fails("argument 2: expected a number, got a bool", [&] { master.rpc_sync(1, "scaled", x, true); }));
    EXPECT_TRUE(fails("argument 1: expected an integer, got a number", [&] { master.rpc_sync(1, "zeros", 2.5); }));
    EXPECT_TRUE(fails("argument 1: expected an integer, got an integer",  // too large for an int
                      [&] { master.rpc_sync(1, "zeros", std::int64_t{1} << 40); }));
    const RRef counter = master.remote(1, "Counter", 3, "apples");
    EXPECT_TRUE(fails("no method of 'Counter' is named 'sub': expected one of [add, is even, merge, text]",
                      [&] { counter.rpc_sync("sub", 1); }));
    EXPECT_TRUE(fails("argument 1: expected a tensor, got an object of class 'Counter'",
                      [&] { master.rpc_sync(1, "sum", counter, x); }));
    EXPECT_TRUE(fails("argument 1: expected an object of another class, got an object of class 'linear'",
                      [&] { counter.rpc_sync("merge", master.remote(1, "linear")); }));
    EXPECT_TRUE(fails("expected an object, got a tensor", [&] { master.put(1, x).rpc_sync("forward", x); }));
    EXPECT_TRUE(fails("an object of class 'Counter' cannot be sent", [&] { counter.to_here(); }));
    EXPECT_TRUE(fails_with<Error>({"the result: expected a text, got an integer"},
                                  [&] { counter.rpc_sync<std::string>("add", 1); }));
    EXPECT_TRUE(fails_with<UsageError>({"remote call to 'master': expected the name of a worker, such as worker1"},
                                       [&] { master.put("master", x); }));
    EXPECT_TRUE(fails_with<UsageError>({"expected a worker, from 1 to"}, [&] { master.put("worker9", x); }));
    EXPECT_EQ(counter.rpc_sync<std::int64_t>("add", 0), 4);
  });
}

// Also where the first worker does not know when the second one needs it.
TEST(RpcCalls, PassReferencesFromWorkerToWorker) {
  with_workers([](Master& master) {
    const Tensor x = random_tensor({3, 400}, "x", DType::float32);
    const RRef a = master.remote(1, "scaled", x, 2);
    const RRef b = master.remote(master.workers(), "sum", a, x);
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", a, b), add(scale(x, 2), add(scale(x, 2), x))));
    EXPECT_TRUE(same_bytes(master.rpc_sync(master.workers(), "sum", a, a), scale(x, 4)));
  });
}

TEST(RpcCalls, ThatFailLeaveTheWorkerAlive) {
  with_workers([](Master& master) {
    const int last = master.workers();
    const std::string rank = fmt::format("rank {}: ", last);
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "call of 'fail': the function has failed"},
                                        [&] { master.rpc_sync(last, "fail"); }));
    EXPECT_TRUE(fails_with<RemoteError>(
        {rank.c_str(),
         "no function or class is named 'none': expected one of [Counter, broken, "
         "count, elsewhere, fail, linear, no optimizer, nothing, null, on another "
         "device, position, scaled, sgd, sgd with, sleep, sleep for seconds, sum, zeros]; add it "
         "to the table that all ranks build"},
        [&] { master.rpc_sync(last, "none"); }));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "call of 'broken': it cannot be made"},
                                        [&] { master.remote(last, "broken").confirm(); }));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "call of 'broken'"}, [&] {
      master.remote(last, "broken").remote("forward", Tensor::zeros({2, 4})).to_here();
    }));
    EXPECT_TRUE(fails_with<UsageError>({"remote call to rank 9: expected a worker, from 1 to"},
                                       [&] { master.remote(9, "linear"); }));
    EXPECT_TRUE(fails_with<UsageError>({"rank 0 is the master"}, [&] { master.rpc_sync(0, "sum"); }));

    const RRef linear = master.remote(last, "linear");
    const Tensor x = Tensor::zeros({2, 4});
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "call of 'forward'", "[2, 5]"}, [&] {
      linear.remote("forward", Tensor::zeros({2, 5})).to_here();
    }));
    // What is computed from a failed value has its error, on other workers too.
    const RRef other = master.remote(1, "linear");
    const RRef failed = linear.remote("forward", Tensor::zeros({2, 5}));
    EXPECT_TRUE(fails_with<RemoteError>({rank.c_str(), "call of 'forward'"},
                                        [&] { other.remote("forward", failed).to_here(); }));
    EXPECT_EQ(linear.remote("forward", x).to_here().shape(), (Shape{2, 4}));
  });
}

TEST(RpcCalls, OfARankThatIsNoWorkerAreRefused) {
  with_workers([](Master& master) {
    const Tensor x = Tensor::zeros({2, 4});
    for (const int rank : {-1, 0, 9}) {
      const auto refuses = [&](const auto& call) { return fails_with<UsageError>({"expected a worker"}, call); };
      EXPECT_TRUE(refuses([&] { master.put(rank, x); }));
      EXPECT_TRUE(refuses([&] { master.rpc_sync(rank, "sum", x, x); }));
      EXPECT_TRUE(refuses([&] { master.rpc_async(rank, "nothing"); }));
    }
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", x, x), x));
  });
}

TEST(RpcCalls, AnUndefinedTensorIsRefusedBeforeTheWorkerWaitsForIt) {
  with_workers([](Master& master) {
    EXPECT_TRUE(fails_with<Error>({"remote call to rank 1: expected a tensor"}, [&] { master.put(1, Tensor()); }));
    const Tensor x = Tensor::full({2, 4}, 1);
    EXPECT_TRUE(fails_with<Error>({"expected a tensor"}, [&] { master.rpc_sync(1, "sum", x, Tensor()); }));
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", x, x), add(x, x)));
  });
}

TEST(RpcCalls, ThatReturnWhatCannotBeSentLeaveTheWorkerAlive) {
  with_workers([](Master& master) {
    EXPECT_TRUE(fails_with<RemoteError>(
        {"rank 1: call of 'on another device': the result is on", "expected the worker's device"},
        [&] { master.rpc_sync(1, "on another device"); }));
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: call of 'named_parameters': the result is on"},
                                        [&] { master.remote(1, "elsewhere").list("named_parameters"); }));
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: call of 'null': the factory returned null"},
                                        [&] { master.remote(1, "null").confirm(); }));
    const RRef linear = master.remote(1, "linear");
    EXPECT_TRUE(fails_with<RemoteError>({"rank 1: call of 'no optimizer': the factory returned null"}, [&] {
      DistributedOptimizer(master, "no optimizer", linear.list("named_parameters"));
    }));
    EXPECT_EQ(linear.remote("forward", Tensor::zeros({2, 4})).to_here().shape(), (Shape{2, 4}));
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
    const RRef linear = master.remote(1, "linear");
    std::vector<Future> futures;
    {
      auto context = std::make_unique<DistributedContext>(master);
      futures.push_back(linear.remote("forward", Tensor::zeros({2, 4})).fetch());
    }
    EXPECT_FALSE(futures[0].wait().requires_grad());
    const DistributedContext next(master);
    EXPECT_FALSE(futures[0].wait().requires_grad());
    EXPECT_TRUE(linear.remote("forward", Tensor::zeros({2, 4})).to_here().requires_grad());
  });
}

TEST(RpcAutograd, AnErrorOnOneWorkerStepsNone) {
  with_workers([](Master& master) {
    const int last = master.workers();
    const RRef front = master.remote(1, "linear");
    const RRef back = master.remote(last, "linear");
    const NamedRRefs parameters = RemoteSequential({front, back}).named_parameters();
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].second.to_here();
    const Tensor x = Tensor::full({2, 4}, 1);
    const std::string rank = fmt::format("rank {}: call of 'forward'", last);
    {
      DistributedContext context(master);
      const Tensor y = back.remote("forward", front.remote("forward", x)).to_here();
      const RRef failed = back.remote("forward", Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({rank.c_str()}, [&] { optimizer.step(context); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].second.to_here(), before));
  });
}

TEST(RpcAutograd, RefusesAStepAfterACallThatThrew) {
  with_workers([](Master& master) {
    const RRef linear = master.remote(1, "linear");
    const NamedRRefs parameters = linear.list("named_parameters");
    DistributedOptimizer optimizer(master, "sgd", parameters);
    const Tensor before = parameters[0].second.to_here();
    {
      DistributedContext context(master);
      const Tensor y = linear.remote("forward", Tensor::full({2, 4}, 1)).to_here();
      const RRef failed = linear.remote("forward", Tensor::zeros({2, 5}));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: call of 'forward'"}, [&] { context.backward(loss_of(y)); }));
      EXPECT_TRUE(fails_with<RemoteError>({"rank 1: call of 'forward'"}, [&] { optimizer.step(context); }));
    }
    EXPECT_TRUE(same_bytes(parameters[0].second.to_here(), before));
    DistributedContext context(master);
    context.backward(loss_of(linear.remote("forward", Tensor::full({2, 4}, 1)).to_here()));
    optimizer.step(context);
    EXPECT_FALSE(same_bytes(parameters[0].second.to_here(), before));
    EXPECT_TRUE(fails_with<RemoteError>({"no function or class is named 'none'"},
                                        [&] { DistributedOptimizer none(master, "none", parameters); }));
  });
}

TEST(RpcAutograd, AStepNeedsABackward) {
  with_workers([](Master& master) {
    const RRef linear = master.remote(1, "linear");
    DistributedOptimizer optimizer(master, "sgd", linear.list("named_parameters"));
    DistributedContext context(master);
    const Tensor y = linear.rpc_sync("forward", Tensor::full({2, 4}, 1));
    EXPECT_TRUE(fails_with<Error>({"the context has no gradients"}, [&] { optimizer.step(context); }));
    context.backward(loss_of(y));
    EXPECT_TRUE(fails_with<Error>({"it has been called already"}, [&] { context.backward(loss_of(y)); }));
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
  const double seconds = 1.5 * timeout;
  with_workers(
      [&](Master& master) {
        EXPECT_EQ(master.rpc_sync<double>(1, "sleep for seconds", seconds), seconds);
        std::vector<Future> behind;  // an answer behind calls that take longer together
        for (int i = 0; i < 3; ++i) {
          behind.push_back(master.rpc_async(1, "sleep for seconds", seconds / 2));
        }
        EXPECT_EQ(behind[2].wait<double>(), seconds / 2);
        EXPECT_FALSE(master.rpc_sync(master.workers(), "nothing").defined());
        static_cast<void>(master.rpc_async(master.workers(), "sleep for seconds", seconds));  // at the end, too
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
  table.add_class("slow", [] { return std::make_shared<Slow>(); });
  run_with_master({.ranks = 4, .timeout = 0.3}, table, [](Master& master) {
    const RRef slow = master.remote(1, "slow");
    const RRef linear = master.remote(2, "linear");
    EXPECT_EQ(linear.remote("forward", slow.remote("forward", Tensor::zeros({2, 4}))).to_here().shape(), (Shape{2, 4}));
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
      EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", x, x), add(x, x)));
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
    EXPECT_TRUE(same_bytes(master.rpc_sync(1, "sum", x, x), add(x, x)));
    const auto peaks = [&] { return master.report(0).peak_bytes + master.report(1).peak_bytes; };
    static_cast<void>(peaks());  // they are measured from here on
    for (int i = 0; i < 20; ++i) {
      static_cast<void>(master.rpc_sync(1, "sum", x, x));
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
      counts.push_back(master.rpc_async(1, "count", Tensor::zeros({1024})));
    }
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(counts[static_cast<std::size_t>(i)].wait().to_vector<float>()[0], static_cast<float>(i + 1));
    }
  });
}

TEST(RpcMessages, ThatAreCutOrDamagedAreRefused) {
  const rpc::Command command{.task = rpc::Task::call,
                             .result = 1 << 20,
                             .name = "sum",
                             .arguments = {Tensor::zeros({2, 3}), std::int64_t{7}, rpc::Reference{3}}};
  const std::vector<std::uint8_t> whole = rpc::pack({command}).bytes;
  const auto unpacked = [](const std::vector<std::uint8_t>& bytes) {
    return rpc::unpack_commands({Device{}, bytes, [](const Shape&, DType) { return Tensor(); }});
  };
  EXPECT_EQ(rpc::pack(unpacked(whole)).bytes, whole);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    EXPECT_TRUE(fails_with<Error>({"more bytes of a message"}, [&] {
      unpacked({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    })) << length;
  }
  EXPECT_TRUE(fails_with<Error>({"expected a byte of a message from 0 to"}, [&] { unpacked({255}); }));
  const std::vector<std::uint8_t> long_text{4, 0xff, 0xff, 0xff, 0xff, 0x0f};  // 4 GiB, of which nothing follows
  EXPECT_TRUE(fails_with<Error>({"expected 4294967295 more bytes"}, [&] {
    rpc::unpack_value({Device{}, long_text, [](const Shape&, DType) { return Tensor(); }});
  }));
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
