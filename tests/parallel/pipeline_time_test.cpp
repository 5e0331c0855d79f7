// How long a pipeline takes by a clock that only its work moves, by exact times: as long as simulate says.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/autograd/node.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "parallel/comm/link_direction.h"
#include "parallel/comm/thread/thread_communicator.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

/// A virtual clock for which nothing takes time but what says so.
class ExactClock final : public Clock {
 public:
  explicit ExactClock(const Network& network) : Clock(network) {}
  ClockKind kind() const override { return ClockKind::virtual_time; }
  double now() noexcept override { return now_; }
  std::unique_ptr<Clock> another() const override { return std::make_unique<ExactClock>(network()); }
  void work(double seconds) { now_ += seconds; }

 private:
  void stop() override {}
  double resume(double earliest) noexcept override { return now_ = earliest; }

  double now_ = 0;
};

/// Gives what it gets. Forward and backward take exact times.
class Work final : public Module {
 public:
  Work(ExactClock& clock, double forward, double backward) : clock_(clock), forward_(forward), backward_(backward) {}
  Tensor forward(const Tensor& x) override {
    clock_.work(forward_);
    Tensor y = x.detach();
    y.set_grad_node(std::make_shared<WorkNode>(x, clock_, backward_));
    return y;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  class WorkNode final : public Node {
   public:
    WorkNode(const Tensor& x, ExactClock& clock, double backward)
        : Node("work", {x}), clock_(clock), backward_(backward) {}
    Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
      clock_.work(backward_);
      return {grad};
    }

   private:
    ExactClock& clock_;
    double backward_;
  };

  ExactClock& clock_;
  double forward_;
  double backward_;
};

/// When each rank was done, and how long it worked.
struct Times {
  std::vector<double> ends;
  std::vector<double> busy;

  double seconds() const { return *std::max_element(ends.begin(), ends.end()); }
  double idle() const {
    return 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / (static_cast<double>(busy.size()) * seconds());
  }
};

/// Micro-batches of so many samples: messages that are sent at once, and some that wait for their receive.
constexpr std::int64_t kShortMessage = 1;
constexpr std::int64_t kLongMessage = 600;
double bytes_of(std::int64_t samples) { return static_cast<double>(samples) * 2 * sizeof(float); }

/// Runs `schedule` by the library, with work that takes `costs`, on micro-batches of `samples`.
Times run(const Schedule& schedule, const Costs& costs, const Link& link = {}, std::int64_t samples = kShortMessage,
          Stage::Recompute recompute = Stage::Recompute::no) {
  const int ranks = schedule.rank_count();
  Times times{std::vector<double>(static_cast<std::size_t>(ranks)),
              std::vector<double>(static_cast<std::size_t>(ranks))};
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto world =
      std::make_shared<ThreadWorld>(std::vector<Device>(static_cast<std::size_t>(ranks)), std::chrono::seconds(60));
  launch({.ranks = ranks}, [&](Rank& rank) {
    const auto r = static_cast<std::size_t>(rank.index);
    const auto clock = std::make_shared<ExactClock>(link);
    ThreadCommunicator comm(world,
                            {"world", rank.index, members, rank.device, clock, std::make_shared<FlightRecorder>()},
                            WaitMode::sleeping);
    std::map<int, Stage> stages;
    for (int s = 0; s < schedule.stage_count(); ++s) {
      if (schedule.holds(rank.index, s)) {
        const auto number = static_cast<std::size_t>(s);
        auto layers = std::make_shared<Sequential>();
        layers->add("fc", std::make_shared<Linear>(2, 2));  // its parameters want gradients, so there is a backward
        layers->add("work", std::make_shared<Work>(*clock, costs.forward[number], costs.backward[number]));
        layers->materialize(1, rank.device);
        stages.emplace(s, Stage(layers, recompute));
      }
    }
    const auto entering = std::vector<Shape>(static_cast<std::size_t>(schedule.stage_count()), Shape{1, 2});
    Pipeline pipeline(std::move(stages), entering, schedule, comm);
    const StepData data{[&](int) {
                          return Tensor::zeros({samples, 2}, DType::float32, rank.device);
                        },
                        [&](int) { return Tensor::zeros({samples}, DType::int32, rank.device); },
                        std::vector<std::int64_t>(static_cast<std::size_t>(schedule.microbatches), samples)};
    const auto replicas = comm.split(schedule.stage_of(rank.index), rank.index);
    pipeline.begin(schedule, data);
    for (const Action& action : schedule.ranks[r]) {
      if (action.operation == Operation::reduce_grad) {
        replicas->barrier();  // where they average their gradients
      } else if (action.operation == Operation::update) {
        clock->work(costs.update_of(r));
      } else {
        pipeline.perform(action);
      }
    }
    pipeline.finish();
    times.ends[r] = clock->now();
    times.busy[r] = clock->now() - clock->waited();
  });
  return times;
}

void expect_what_is_simulated(const Schedule& schedule, Costs costs, const Link& link, const std::string& what,
                              std::int64_t samples = kShortMessage, Stage::Recompute recompute = Stage::Recompute::no) {
  const auto borders = static_cast<std::size_t>(schedule.stage_count()) - 1;
  costs.message.assign(borders, link.seconds(bytes_of(samples)));
  costs.transfer.assign(borders, link.transfer_seconds(bytes_of(samples)));
  costs.bytes.assign(borders, bytes_of(samples));
  costs.eager_bytes = kEagerBytes;
  const Simulation simulated = simulate(schedule, recompute == Stage::Recompute::yes ? with_recompute(costs) : costs);
  const Times times = run(schedule, costs, link, samples, recompute);
  EXPECT_NEAR(times.seconds(), simulated.seconds, 1e-9 * simulated.seconds) << what;
  EXPECT_NEAR(times.idle(), simulated.idle, 1e-9) << what;
}

// Equal stages without a drain: what is left of the idle share are the two ends of the stream.
TEST(PipelineTime, IdleShareOfAStreamGoesToZero) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int microbatches : {4, 16, 64, 256, 1024}) {
      const std::vector<int> straight(static_cast<std::size_t>(p), 1);
      const Schedule schedule = lower(pipedream_schedule(straight, microbatches, 1, Versions::stash));
      const Times times = run(schedule, Costs::uniform(p, 1, 1, 1));
      EXPECT_NEAR(times.seconds(), 3 * (microbatches + p - 1), 1e-6) << p << " ranks, " << microbatches;
      EXPECT_NEAR(times.idle(), (p - 1.0) / (microbatches + p - 1), 1e-9) << p << " ranks, " << microbatches;
    }
  }
}

/// Stages that differ, by no rule.
Costs unequal(int stages) {
  Costs costs = Costs::uniform(stages, 0, 0, 0);
  for (int s = 0; s < stages; ++s) {
    costs.forward[static_cast<std::size_t>(s)] = 1 + 0.37 * (s * 5 % 7);
    costs.backward[static_cast<std::size_t>(s)] = 2 + 0.23 * (s * 3 % 5);
  }
  return costs;
}

TEST(PipelineTime, IsThatOfTheSimulation) {
  // Free; with a latency; and so narrow that messages queue.
  for (const Link& link :
       {Link{}, Link{.latency = 0.6}, Link{.latency = 0.6, .bytes_per_second = bytes_of(kShortMessage) / 3.1}}) {
    const std::string slow = fmt::format(", {} s, {} B/s", link.latency, link.bytes_per_second);
    for (const std::string& name : schedule_names()) {
      const ScheduleKind& kind = *find_schedule(name);
      if (!kind.splits_backward) {  // `Work` takes its time in whole backwards
        const Schedule schedule =
            lower(make_schedule(name, 4, 8, kind.takes_chunks() ? 2 : 1), {.sends_wait = kind.sends_wait});
        expect_what_is_simulated(schedule, unequal(schedule.stage_count()), link, name + slow);
      }
    }
    Costs costs = unequal(4);
    costs.update = {0.3, 0.1, 0.4, 0.2};
    for (const Versions versions : {Versions::stash, Versions::flush}) {
      const Schedule schedule = lower(pipedream_schedule({1, 1, 1, 1}, 50, 2, versions));
      expect_what_is_simulated(schedule, costs, link, to_string(versions) + slow);
    }
  }
}

// Every backward runs the forward again, in the last stage too; a split backward does so before the input gradient.
TEST(PipelineTime, WithRecomputationIsThatOfTheSimulation) {
  for (const std::string& name : schedule_names()) {
    const ScheduleKind& kind = *find_schedule(name);
    const Schedule schedule =
        lower(make_schedule(name, 4, 8, kind.takes_chunks() ? 2 : 0), {.sends_wait = kind.sends_wait});
    Costs costs = unequal(schedule.stage_count());
    costs.backward_input = costs.backward;  // as `Work` has no weights
    expect_what_is_simulated(schedule, costs, {.latency = 0.6}, name, kShortMessage, Stage::Recompute::yes);
  }
  const Schedule stream = lower(pipedream_schedule({1, 1, 1, 1}, 50, 2, Versions::stash));
  expect_what_is_simulated(stream, unequal(4), {}, "stash", kShortMessage, Stage::Recompute::yes);
}

// Long messages start when their receive is posted, so it matters when that is, and whether the sender waits.
TEST(PipelineTime, OfLongMessagesIsThatOfTheSimulation) {
  const Link link{.latency = 0.6, .bytes_per_second = bytes_of(kLongMessage) / 3.1};
  for (const char* name : {"gpipe", "1f1b", "interleaved", "foldx_aiao"}) {
    const Schedule computations = make_schedule(name, 4, 8, find_schedule(name)->takes_chunks() ? 2 : 1);
    for (const int receives : {0, 1, kDefaultReceives}) {
      for (const bool sends_wait : {false, true}) {
        const Schedule schedule = lower(computations, {.receives = receives, .sends_wait = sends_wait});
        if (check(schedule).empty()) {
          const std::string what = fmt::format("{}, {} receives, sends wait: {}", name, receives, sends_wait);
          expect_what_is_simulated(schedule, unequal(schedule.stage_count()), link, what, kLongMessage);
        }
      }
    }
  }
}

// Micro-batches go to the replicas round-robin, which average in each update; 50 do not divide by 3.
TEST(PipelineTime, OfReplicatedStagesIsThatOfTheSimulation) {
  for (const std::vector<int>& replicas : {std::vector{2, 1}, {3, 1}, {2, 2, 1}, {1, 3}}) {
    const auto stages = static_cast<int>(replicas.size());
    const Schedule schedule = lower(pipedream_schedule(replicas, 50, 1, Versions::stash));
    const std::string what = fmt::format("{}", fmt::join(replicas, ","));
    expect_what_is_simulated(schedule, unequal(stages), {}, what);
    // Where each stage takes as long as its replicas can share, nobody waits for another stage.
    Costs balanced = Costs::uniform(stages, 0, 0, 0);
    for (std::size_t s = 0; s < replicas.size(); ++s) {
      balanced.forward[s] = replicas[s];
      balanced.backward[s] = 2.0 * replicas[s];
    }
    expect_what_is_simulated(schedule, balanced, {}, what + ", balanced");
  }
}

}  // namespace
}  // namespace stagecoach
