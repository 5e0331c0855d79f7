// Asynchronous CPU devices: the caller runs ahead, reads wait, errors surface, events order, memory lives long enough.

#include "core/asynchronous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/trace.h"
#include "core/transfer.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::fresh_device;
using test::labels_of;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

/// Two asynchronous devices, whose streams a test can hold.
class Asynchronous : public ::testing::Test {
 protected:
  ~Asynchronous() override { release(); }
  /// Holds the compute stream of a device until release().
  void hold(Device device) {
    call_queue({device, Stream::kCompute}).push("hold", [gate = gate_] { gate.wait(); });
  }
  void release() {
    if (!std::exchange(released_, true)) {
      open_.set_value();
    }
  }
  Tensor full(Device device, double value) const { return Tensor::full({1009}, value, DType::float32, device); }

  const Device one_ = fresh_device();
  const Device two_ = fresh_device();
  const AsynchronousDevices devices_{{one_, two_}};
  const Stream compute_{one_, Stream::kCompute};

 private:
  std::promise<void> open_;
  std::shared_future<void> gate_ = open_.get_future().share();
  bool released_ = false;
};

TEST_F(Asynchronous, LetsTheCallerRunAhead) {
  hold(one_);
  Tensor x = full(one_, 1);
  for (int i = 0; i < 10; ++i) {
    x = scale(x, 2);
  }
  const Tensor there = x.to(two_);
  release();  // all of the above was only appended
  EXPECT_EQ(there.to_vector<float>(), std::vector<float>(1009, 1024.0F));
  EXPECT_EQ(x.narrow(1000, 1).item(), 1024);
}

TEST_F(Asynchronous, TheCallerWaitsWhenQueuedCallsWriteTooMuchMemory) {
  CallQueue& queue = call_queue(compute_);
  hold(one_);
  queue.push(
      "first", [] {}, CallQueue::kBytesAlwaysAllowed / 2);
  queue.push(
      "second", [] {}, CallQueue::kBytesAlwaysAllowed / 2);
  queue.push("none", [] {});
  std::atomic<bool> is_appended = false;
  const std::jthread caller([&] {
    queue.push(
        "third", [] {}, 1);
    is_appended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_appended);
  release();
  queue.finish();
  const Ticket large = queue.push(
      "large", [] {}, 2 * CallQueue::kBytesAlwaysAllowed);  // alone it may be that large
  queue.wait(large);
}

TEST_F(Asynchronous, ADeviceThatHasReservedMuchMayQueueMore) {
  constexpr std::size_t kHeld = 3 * CallQueue::kBytesAlwaysAllowed;
  Tensor held = Tensor::empty({static_cast<std::int64_t>(kHeld / sizeof(float))}, DType::float32, one_);
  CallQueue& queue = call_queue(compute_);
  hold(one_);
  queue.push(
      "first", [] {}, kHeld / 2 - 1);
  queue.push(
      "second", [] {}, 1);  // would wait forever if the first one had filled the queue
  release();
  queue.finish();
  held = {};
  allocator(one_).empty_cache();  // another test needs a small device
}

TEST_F(Asynchronous, WaitsForAWriteByTheCaller) {
  Tensor x = full(one_, 1);
  const Tensor doubled = scale(x, 2);
  x.mutable_data<float>()[0] = 7;  // after the read of scale
  EXPECT_EQ(doubled.to_vector<float>(), std::vector<float>(1009, 2.0F));
  EXPECT_EQ(scale(x, 3).to_vector<float>()[0], 21);
}

// As from pageable memory on a GPU: the caller may overwrite what it copied from.
TEST_F(Asynchronous, CopiesFromTheCallersMemoryAtOnce) {
  hold(one_);
  Tensor here = Tensor::full({1009}, 1);
  const Tensor there = here.to(one_);
  here.fill(2);
  release();
  EXPECT_EQ(there.to_vector<float>(), std::vector<float>(1009, 1.0F));
}

TEST_F(Asynchronous, ReportsAnErrorAtTheNextWait) {
  const Tensor logits = random_tensor({2, 3}, "logits", DType::float32, one_);
  const Tensor loss = cross_entropy(logits, labels_of({0, 77}, one_));
  const std::string where = "cross_entropy on " + to_string(one_);
  const Tensor later = scale(loss, 2);
  EXPECT_TRUE(fails_with({where.c_str(), "got 77 for sample 1"}, [&] { loss.item(); }));
  EXPECT_TRUE(fails_with({where.c_str()}, [&] { later.item(); })) << "it was not computed";
  EXPECT_TRUE(fails_with({where.c_str()}, [&] { full(one_, 3).to_vector<float>(); })) << "nor is anything else";
  EXPECT_EQ(full(two_, 3).narrow(0, 1).item(), 3) << "other devices go on";
}

TEST_F(Asynchronous, StaysSynchronousIfOneOfTheDevicesIsRefused) {
  const Device three = fresh_device();
  EXPECT_TRUE(fails_with({"expected CPU devices that are synchronous so far"}, [&] {
    const AsynchronousDevices twice({three, three}, Stream::kCompute);
  }));
  EXPECT_FALSE(is_asynchronous(three));
  EXPECT_EQ(copy_stream(), Stream::kCopies);
  const AsynchronousDevices again({three});
  EXPECT_EQ(full(three, 3).narrow(0, 1).item(), 3);
}

// The host's memory has no queue that an event could order.
TEST_F(Asynchronous, CopiesToTheCallersMemoryBeforeItReturns) {
  const Tensor there = full(one_, 3);
  Tensor here = Tensor::zeros({1009});
  copy_async(there, here);
  EXPECT_EQ(here.to_vector<float>(), std::vector<float>(1009, 3.0F));
  hold(one_);
  Tensor back = full(one_, 0);
  const Event done = copy_async(here, back);
  here.fill(4);
  release();
  done.wait(compute_);
  EXPECT_EQ(scale(back, 2).to_vector<float>(), std::vector<float>(1009, 6.0F));
}

TEST_F(Asynchronous, ReportsAnErrorOfAnotherDevice) {
  const Tensor logits = random_tensor({2, 3}, "logits", DType::float32, one_);
  const Tensor there = cross_entropy(logits, labels_of({0, -1}, one_)).to(two_);
  const std::string where = "cross_entropy on " + to_string(one_);
  EXPECT_TRUE(fails_with({where.c_str(), "got -1 for sample 1"}, [&] { scale(there, 2).item(); }));
}

TEST_F(Asynchronous, OrdersStreamsByEvents) {
  Tensor there = Tensor::zeros({1009}, DType::float32, two_);
  Event used;
  used.record({two_, Stream::kCompute});
  for (int round = 1; round <= 20; ++round) {
    const Tensor here = full(one_, round);
    Event ready;
    ready.record(compute_);
    copy_async(here, there, ready, used).wait({two_, Stream::kCompute});
    const Tensor doubled = scale(there, 2);
    used.record({two_, Stream::kCompute});
    ASSERT_EQ(doubled.to_vector<float>(), std::vector<float>(1009, 2.0F * static_cast<float>(round)));
  }
}

// Both would be races: a read of what may not have arrived, and a write to what may still be read. They are refused
// whichever thread is faster, even if the copy has long been done.
TEST_F(Asynchronous, RefusesAProgramThatForgetsTheEvent) {
  Tensor here = full(one_, 1);
  Tensor there = Tensor::zeros({1009}, DType::float32, two_);
  const Event done = copy_async(here, there);
  finish_queued_calls();
  const std::string reader = "scale on " + to_string(two_);
  const std::string writer = "copy on " + to_string(one_) + " (copies) writes";
  EXPECT_TRUE(fails_with({"race", reader.c_str(), writer.c_str()}, [&] { scale(there, 2); }));
  EXPECT_TRUE(fails_with({"race", "fill", "reads"}, [&] { here.fill(2); }));
  done.wait({two_, Stream::kCompute});
  done.wait(compute_);
  here.fill(2);
  EXPECT_EQ(scale(there, 2).to_vector<float>(), std::vector<float>(1009, 2.0F));
}

TEST_F(Asynchronous, RefusesACopyBeforeItsSourceIsReady) {
  Event early;
  early.record(compute_);
  const Tensor here = full(one_, 1);
  Tensor there = Tensor::empty({1009}, DType::float32, two_);
  EXPECT_TRUE(fails_with({"race", "copy", "fill"}, [&] { copy_async(here, there, early, early); }));
}

// to() and copy_from() order themselves, on either stream.
TEST_F(Asynchronous, OrdersItsOwnCopies) {
  Tensor here = full(one_, 1);
  const Tensor there = here.to(two_);
  hold(one_);
  here.fill(2);  // after the copy
  Tensor again = scale(there, 3);
  again.copy_from(here);
  release();
  EXPECT_EQ(there.narrow(0, 1).item(), 1);
  EXPECT_EQ(again.to_vector<float>(), std::vector<float>(1009, 2.0F));
}

TEST_F(Asynchronous, KeepsMemoryThatAQueuedCallStillUses) {
  Tensor x = full(one_, 5);
  x.to_vector<float>();  // drains the stream
  const void* address = x.storage()->data();
  const auto in_use = [&] { return allocator(one_).stats().current_bytes; };
  const std::size_t before = in_use();
  hold(one_);
  const Tensor y = scale(x, 2);
  x = {};
  const Tensor other = full(one_, 9);
  EXPECT_NE(other.storage()->data(), address);
  EXPECT_EQ(in_use(), 3 * before);
  release();
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1009, 10.0F));
  EXPECT_EQ(in_use(), 2 * before);
}

TEST_F(Asynchronous, ChecksTheVersionsOfSavedTensors) {
  Tensor x = random_leaf({4, 3}, "x", DType::float32, one_);
  const Tensor w = random_leaf({2, 3}, "w", DType::float32, one_);
  const Tensor y = linear(x, w);
  {
    const NoGrad no_grad;
    x.fill(0);
  }
  EXPECT_TRUE(fails_with({"linear", "'input'", "modified"}, [&] {
    backward(y, random_tensor({4, 2}, "g", DType::float32, one_));
  }));
}

TEST_F(Asynchronous, IsOverAtTheEndOfTheScope) {
  const Device device = fresh_device();
  Tensor x;
  {
    const AsynchronousDevices on({device});
    EXPECT_TRUE(is_asynchronous(device));
    EXPECT_TRUE(fails_with({"synchronous so far"}, [&] { const AsynchronousDevices twice({device}); }));
    x = scale(full(device, 4), 2);
  }
  EXPECT_FALSE(is_asynchronous(device));
  EXPECT_EQ(scale(x, 2).to_vector<float>(), std::vector<float>(1009, 16.0F));
}

TEST_F(Asynchronous, ShowsItsWorkInTheTraceOfTheCaller) {
  Trace trace;
  trace.attach(0);
  {
    const Span span("forward", "action", [] { return "F3"; });
    scale(full(one_, 1), 2);
  }
  const Tensor there = full(one_, 1).to(two_);
  Trace::detach();
  finish_queued_calls();
  const std::string json = trace.to_json();
  for (const std::string& part : {std::string("\"host\""), "\"" + to_string(one_) + "\"",
                                  "\"" + to_string(one_) + " copies\"", std::string(R"("name":"F3","cat":"device")")}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " is not in " << json;
  }
}

}  // namespace
}  // namespace stagecoach
