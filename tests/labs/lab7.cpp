#include "tests/labs/lab7.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/ops.h"
#include "core/stream_order.h"
#include "core/transfer.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/lab7_steps.h"

namespace stagecoach::labs::lab7 {
namespace {

constexpr const char* kMove = "chapters/07_one_controller/lab/move.h";
constexpr const char* kEvent = "scripts/lab.sh hint 7 2 1: which stream waits for the event?";
constexpr const char* kBeside = "chapters/07_one_controller/lab/README.md, \"Part 1\", questions 1 to 3";
constexpr const char* kTicks =
    "chapters/07_one_controller/lab/README.md, \"Part 2\", question 1; chapter 7, \"How fast can it be?\"";
constexpr const char* kNoWait = "chapter 7, \"The idea\": the program waits only when it reads a number";
constexpr const char* kRefusal = "a call that the grader makes fail";

/// Makes the next call on each device fail, so that whoever waits for the device gets an Error.
void refuse_waits(const std::vector<Device>& devices) {
  for (const Device device : devices) {
    for (const int stream : {Stream::kCompute, Stream::kCopies}) {
      call_queue({device, stream}).push("wait", [] { fail(kRefusal); });
    }
  }
}

/// Calls `body`. Throws Failed if it waits for a device; `after` says what came before that.
void require_no_wait(const std::function<void()>& body, const std::function<std::string()>& after) {
  try {
    body();
  } catch (const Error& error) {
    if (std::string(error.what()).find(kRefusal) == std::string::npos) {
      throw;
    }
    throw Failed("a program that appends calls and waits for no device" + for_case(),
                 "it waits for a device " + after(), kNoWait);
  }
}

// Part 1.

Tensor numbers(const Shape& shape, Device device) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 1.0F);
  return Tensor::from(values, shape, device);
}

struct Route {
  Device from;
  Device to;
};
const std::vector<Route>& routes() {
  static const std::vector<Route> all{{{DeviceType::cpu, 1}, {DeviceType::cpu, 2}},
                                      {{DeviceType::cpu, 3}, {DeviceType::cpu, 1}},
                                      {{}, {DeviceType::cpu, 2}},
                                      {{DeviceType::cpu, 2}, {DeviceType::cpu, 2}}};
  return all;
}

enum class Waits { succeed, fail };

/// Calls check(x, to) for each route of a tensor that its device has just been asked to compute.
void for_each_route(Waits waits, const std::function<void(const Tensor& x, Device to)>& check) {
  for (const auto [from, to] : routes()) {
    set_case(fmt::format("a copy from {} to {}", to_string(from), to_string(to)));
    const AsynchronousDevices asynchronous(devices_of(3));
    if (waits == Waits::fail) {
      refuse_waits(devices_of(3));
    }
    check(scale(numbers({6, varied("lab 7: columns", 3, 9)}, from), 2), to);
  }
}

Tensor moved(const Answer& answer, const Tensor& x, Device to) { return answer.finish_move(answer.start_move(x, to)); }

void moves_elements(const Answer& answer) {
  for_each_route(Waits::succeed, [&](const Tensor& x, Device to) {
    const auto moved_before = bytes_moved();
    const Tensor out = moved(answer, x, to);
    const bool uses_to = bytes_moved() != moved_before;
    if (!out.defined() || out.device() != to || out.shape() != x.shape() || out.dtype() != x.dtype()) {
      throw Failed(fmt::format("{}{} on {}{}", name_of(x.dtype()), to_string(x.shape()), to_string(to), for_case()),
                   describe(out), kMove);
    }
    if (out.to_vector<float>() != x.to_vector<float>()) {
      throw Failed("the elements of x" + for_case(), "others", kMove);
    }
    if (uses_to) {
      throw Failed("a copy by copy_async" + for_case(), "one by Tensor::to", kMove);
    }
  });
}

void orders_later_calls(const Answer& answer) {
  for_each_route(Waits::succeed, [&](const Tensor& x, Device to) {
    const Tensor out = moved(answer, x, to);
    try {
      const Tensor later = scale(out, 0.5);
      scale(later, 2).to_vector<float>();
    } catch (const Error& error) {
      throw Failed("an operation after finish_move to wait for the copy" + for_case(), error.what(), kEvent);
    }
  });
}

void move_does_not_wait(const Answer& answer) {
  for_each_route(Waits::fail, [&](const Tensor& x, Device to) {
    lab::Move move;
    require_no_wait([&] { move = answer.start_move(x, to); }, [] { return "in start_move"; });
    require_no_wait([&] { answer.finish_move(move); }, [] { return "in finish_move"; });
  });
}

/// Returns the last call of `other` that is certain to have run before the next call of `stream`.
Ticket waits_for(const Stream& stream, const Stream& other) { return mark_point(stream)->clock.of(&call_queue(other)); }

/// What there is after start_move from one asynchronous device to another.
struct Started {
  Stream copies;   ///< of the device that sends
  Stream compute;  ///< of the device that receives
  Ticket busy;     ///< the call with which that is busy
  Ticket before;   ///< the last call of `copies` before start_move
};

void for_each_start(const Answer& answer, const std::function<void(const Started&)>& check) {
  for (const auto [from, to] : routes()) {
    if (from == to || from == Device{}) {
      continue;  // no copy; or the host's, which has no stream of its own
    }
    set_case(fmt::format("a copy from {} to {}", to_string(from), to_string(to)));
    const AsynchronousDevices asynchronous(devices_of(3));
    Started started{{from, Stream::kCopies}, {to, Stream::kCompute}, 0, 0};
    const Tensor start = numbers({6, varied("lab 7: columns", 3, 9)}, from);
    const Tensor earlier = scale(numbers({4}, to), 3);
    started.busy = call_queue(started.compute).last();
    started.before = call_queue(started.copies).last();
    const lab::Move move = answer.start_move(scale(start, 2), to);
    check(started);
  }
}

void copy_waits_for_x_alone(const Answer& answer) {
  for_each_start(answer, [](const Started& started) {
    const std::string receiver = to_string(started.compute.device);
    const bool copies = call_queue(started.copies).last() > started.before;
    if (!copies || waits_for(started.copies, started.compute) >= started.busy) {
      throw Failed("a copy that begins when x is computed" + for_case(),
                   copies ? "one that waits for what " + receiver + " was called for before, which uses neither tensor"
                          : "none on the copy stream of x's device",
                   kBeside);
    }
  });
}

void receiver_is_free(const Answer& answer) {
  for_each_start(answer, [](const Started& started) {
    if (waits_for(started.compute, started.copies) > started.before) {
      throw Failed(to_string(started.compute.device) + " to go on with other work until finish_move" + for_case(),
                   "what is appended to it after start_move waits for the copy", kBeside);
    }
  });
}

// Part 2.

std::vector<Case> cases() {
  return {{2, {3, 1, 4}},
          {varied("lab 7: stages", 3, 5), {4, 1, 3, 5, 2, varied("lab 7: samples", 6, 9)}},
          {4, {3, 2}},  // fewer micro-batches than stages
          {1, {2, 3}}};
}

using TickOf = int (*)(const Case& training, int stage, int microbatch);
int tick_of_forward(const Case&, int stage, int microbatch) { return microbatch + stage; }
int tick_of_backward(const Case& training, int stage, int microbatch) {
  return microbatch + training.stages - 1 - stage;
}

/// Returns the micro-batch with so many samples.
int microbatch_of(const Case& training, const StageCall& call) {
  return static_cast<int>(std::find(training.sizes.begin(), training.sizes.end(), call.size) - training.sizes.begin());
}

/// Returns "2F1", as the chapter's figures do.
std::string name_of_call(const Case& training, const StageCall& call, char direction) {
  return fmt::format("{}{}{}", call.stage, direction, microbatch_of(training, call));
}

/// Throws Failed unless `calls` are all m p calls, tick by tick. `failure` is why there are no more of them, if known.
void require_ticks(const Case& training, const std::vector<StageCall>& calls, char direction, TickOf tick_of,
                   const std::string& failure = {}) {
  const int microbatches = static_cast<int>(training.sizes.size());
  std::string drawing = "calls, in their order:";
  for (const StageCall& call : calls) {
    drawing += " " + name_of_call(training, call, direction);
  }
  drawing += failure.empty() ? "" : "\nthen an exception: " + failure;
  std::size_t next = 0;
  for (int tick = 0; tick < microbatches + training.stages - 1; ++tick) {
    std::vector<std::string> expected;
    for (int stage = training.stages - 1; stage >= 0; --stage) {
      for (int i = 0; i < microbatches; ++i) {
        if (tick_of(training, stage, i) == tick) {
          expected.push_back(name_of_call(training, {stage, training.sizes[static_cast<std::size_t>(i)]}, direction));
        }
      }
    }
    std::vector<std::string> got;
    for (; got.size() < expected.size() && next < calls.size(); ++next) {
      got.push_back(name_of_call(training, calls[next], direction));
    }
    if (!std::is_permutation(got.begin(), got.end(), expected.begin(), expected.end())) {
      throw Failed(fmt::format("{} in tick {}{}", fmt::join(expected, ", "), tick, for_case()),
                   got.empty() ? "no call" : fmt::format("{}", fmt::join(got, ", ")), kTicks, drawing);
    }
  }
  if (next < calls.size()) {
    throw Failed(fmt::format("{} calls{}", next, for_case()), std::to_string(calls.size()), kTicks, drawing);
  }
}

/// Checks the calls of one step, also if it fails after them.
void require_ticks_of(const Answer& answer, std::vector<StageCall> StageCalls::*direction, char letter,
                      TickOf tick_of) {
  for (const Case& training : cases()) {
    StageCalls calls;
    try {
      train_with(answer, training, 1, calls);
    } catch (const Error& error) {
      require_ticks(training, calls.*direction, letter, tick_of, error.what());
      throw;
    }
    require_ticks(training, calls.*direction, letter, tick_of);
  }
}

void forwards_in_ticks(const Answer& answer) { require_ticks_of(answer, &StageCalls::forwards, 'F', tick_of_forward); }
void backwards_in_ticks(const Answer& answer) {
  require_ticks_of(answer, &StageCalls::backwards, 'B', tick_of_backward);
}

/// In one step, a stage may wait for calls of the stage before it up to the one that computed its input.
void forwards_wait_for_no_later_call(const Answer& answer) {
  for (const Case& training : cases()) {
    StageCalls calls;
    train_with(answer, training, 1, calls);
    for (const StageCall& call : calls.forwards) {
      for (const StageCall& input : calls.forwards) {
        if (input.stage + 1 == call.stage && input.size == call.size &&
            call.end->clock.of(input.end->queue) > input.end->ticket) {
          throw Failed(fmt::format("{} waits for {}{}", name_of_call(training, call, 'F'),
                                   name_of_call(training, input, 'F'), for_case()),
                       "also for what stage " + std::to_string(input.stage) + " was called for after it", kBeside);
        }
      }
    }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool same_bits(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return same_bits(x.second, y.second); });
}

/// Throws Failed that says which mistake makes these gradients, if it is a known one.
void recognize(const Values& gradients, const Case& training) {
  const std::vector<std::pair<std::vector<Trained>, const char*>> mistakes{
      {train_on_one_device(training, 1, Weighting::sum),
       "those of the sum of the losses, not of their mean: the backward does not begin with 1 / N"},
      {train_on_one_device(training, 1, Weighting::by_microbatches),
       "those of the mean of the micro-batches' means: samples of a small micro-batch weigh too much"},
      {train_on_one_device(training, 1, Weighting::by_samples, Order::descending),
       "those that are added from the last micro-batch to the first, which are rounded otherwise"}};
  for (const auto& [results, mistake] : mistakes) {
    if (same_bits(gradients, results.front().gradients)) {
      throw Failed("the gradients of one device, bit for bit" + for_case(), mistake, kStep);
    }
  }
}

void require_equal(const Values& expected, const Values& got, const std::string& what) {
  for (const auto& [name, values] : expected) {
    const std::vector<float>& mine = got.at(name);
    if (mine.empty()) {
      throw Failed(fmt::format("{} of {}{}", what, name, for_case()), "none", kStep);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &mine[i], sizeof(float)) != 0) {
        throw Failed(
            fmt::format("{} of one device, bit for bit{}; {}[{}] is {:.9g}", what, for_case(), name, i, values[i]),
            fmt::format("{:.9g}", mine[i]), kStep);
      }
    }
  }
}

void require_loss(float expected, float got) {
  if (expected != got) {
    throw Failed(fmt::format("a sum of the losses of {:.9g}{}", expected, for_case()), fmt::format("{:.9g}", got),
                 kStep);
  }
}

void gradients_of_one_device(const Answer& answer) {
  for (const Case& training : cases()) {
    StageCalls calls;
    const Trained got = train_with(answer, training, 1, calls).front();
    const Trained expected = train_on_one_device(training, 1).front();
    if (!same_bits(expected.gradients, got.gradients)) {
      recognize(got.gradients, training);
    }
    require_equal(expected.gradients, got.gradients, "the gradients");
    require_loss(expected.loss, got.loss);
  }
}

void weights_of_one_device(const Answer& answer) {
  constexpr int kSteps = 3;
  for (const Case& training : cases()) {
    StageCalls calls;
    const std::vector<Trained> got = train_with(answer, training, kSteps, calls);
    const std::vector<Trained> expected = train_on_one_device(training, kSteps);
    for (std::size_t step = 0; step < got.size(); ++step) {
      require_equal(expected[step].weights, got[step].weights, fmt::format("after step {}: the weights", step + 1));
    }
  }
}

void step_does_not_wait(const Answer& answer) {
  for (const Case& training : cases()) {
    StageCalls calls;
    PlacedStages placed(training, calls);
    refuse_waits(placed.devices);
    const auto last_call = [&] {
      return !calls.backwards.empty()  ? "after " + name_of_call(training, calls.backwards.back(), 'B')
             : !calls.forwards.empty() ? "after " + name_of_call(training, calls.forwards.back(), 'F')
                                       : "before its first call";
    };
    require_no_wait([&] { placed.step(answer, data_of(training, 0)); }, last_call);
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const auto check = [&](void (*body)(const Answer&)) { return [answer, body] { body(answer); }; };
  return {
      {"move: the elements of x on the other device, copied by copy_async", 5, check(moves_elements), kMove},
      {"move: operations after finish_move wait for the copy", 5, check(orders_later_calls), kEvent},
      {"move: the copy waits for x alone", 10, check(copy_waits_for_x_alone), kBeside},
      {"move: the receiving device is free until finish_move", 5, check(receiver_is_free), kBeside},
      {"move: the program does not wait", 5, check(move_does_not_wait), kMove},
      {"step: forwards are called tick by tick", 15, check(forwards_in_ticks), kTicks},
      {"step: backwards are called tick by tick, from the first micro-batch", 15, check(backwards_in_ticks), kTicks},
      {"step: a stage waits for no later call of the stage before it", 10, check(forwards_wait_for_no_later_call),
       kBeside},
      {"step: gradients equal those of one device, bit for bit", 10, check(gradients_of_one_device), kStep},
      {"step: weights equal those of one device after every step", 10, check(weights_of_one_device), kStep},
      {"step: the program waits for no device", 10, check(step_does_not_wait), kNoWait},
  };
}

}  // namespace stagecoach::labs::lab7
