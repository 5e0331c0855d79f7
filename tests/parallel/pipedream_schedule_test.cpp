// PipeDream's schedule and its ledger: legal at all sizes, with the versions and delays of the papers.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"
#include "parallel/schedule/simulate.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
constexpr Versions kAll[] = {Versions::stash, Versions::vertical, Versions::two_buffers, Versions::flush,
                             Versions::none};

std::vector<int> straight(int p) { return std::vector<int>(static_cast<std::size_t>(p), 1); }

std::string line_of(const Schedule& schedule, int rank) {
  std::string line;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    line += to_string(action) + " ";
  }
  return line;
}

TEST(PipedreamSchedule, UpdatesAfterEveryBackwardWithoutAStop) {
  const Schedule schedule = pipedream_schedule({1, 1}, 3, 1, Versions::stash);
  EXPECT_EQ(line_of(schedule, 0), "0F0 0F1 0B0 0U0 0F2 0B1 0U1 0B2 0U2 ");
  EXPECT_EQ(line_of(schedule, 1), "1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2 ");
}

TEST(PipedreamSchedule, DrainsBeforeEveryUpdateWithFlush) {
  const Schedule schedule = pipedream_schedule({1, 1}, 4, 2, Versions::flush);
  EXPECT_EQ(line_of(schedule, 0), "0F0 0F1 0B0 0B1 0U0 0F2 0F3 0B2 0B3 0U1 ");
  EXPECT_EQ(line_of(schedule, 1), "1F0 1B0 1F1 1B1 1U0 1F2 1B2 1F3 1B3 1U1 ");
}

TEST(PipedreamSchedule, DealsMicroBatchesToReplicasInTurn) {
  const Schedule schedule = pipedream_schedule({2, 1}, 5, 1, Versions::stash);
  EXPECT_EQ(line_of(schedule, 0), "0F0 0F2 0B0 0U0 0F4 0B2 0U1 0B4 0U2 ");
  EXPECT_EQ(line_of(schedule, 1), "0F1 0F3 0B1 0U0 0B3 0U1 0U2 ");  // no micro-batch of the last unit
  EXPECT_EQ(line_of(schedule, 2), "1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2 1F3 1B3 1U3 1F4 1B4 1U4 ");
}

TEST(PipedreamSchedule, IsLegalAtAllSizes) {
  int cases = 0;
  for (const std::vector<int>& replicas : std::vector<std::vector<int>>{{1},
                                                                        {1, 1},
                                                                        {1, 1, 1},
                                                                        {1, 1, 1, 1},
                                                                        straight(8),
                                                                        {2},
                                                                        {2, 1},
                                                                        {1, 2},
                                                                        {3, 1},
                                                                        {2, 2, 1},
                                                                        {1, 3},
                                                                        {2, 3, 1},
                                                                        {4, 2, 1}}) {
    for (const Versions versions : kAll) {
      for (int batch = 1; batch <= 8; ++batch) {
        for (int microbatches = 1; microbatches <= 3 * batch + 7; microbatches += 3) {
          Schedule schedule;
          try {
            schedule = pipedream_schedule(replicas, microbatches, batch, versions);
          } catch (const UsageError&) {
            EXPECT_TRUE(versions != Versions::stash && versions != Versions::none);
            continue;
          }
          EXPECT_EQ(check(schedule), std::vector<std::string>{})
              << fmt::format("{} on {}, {} of {}", to_string(versions), fmt::join(replicas, ","), microbatches, batch);
          for (int count = 1; count <= microbatches; ++count) {
            EXPECT_EQ(check(with_fewer_microbatches(schedule, count)), std::vector<std::string>{});
          }
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 1000);
}

TEST(PipedreamSchedule, DamageIsRefused) {
  const Schedule good = pipedream_schedule({2, 1}, 6, 1, Versions::stash);
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    Schedule bad = good;
    auto& actions = bad.ranks[random() % bad.ranks.size()];
    const std::size_t place = random() % actions.size();
    switch (random() % 3) {
      case 0:
        actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(place));
        break;
      case 1:
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(random() % actions.size()), actions[place]);
        break;
      default:
        actions[place].microbatch += 1 + static_cast<int>(random() % 9);
    }
    EXPECT_FALSE(check(bad).empty());
  }
  Schedule too_early = good;  // the update of a replica before its backward
  std::swap(too_early.ranks[0][2], too_early.ranks[0][3]);
  EXPECT_FALSE(check(too_early).empty());
  Schedule one_step = good;
  one_step.batch = 0;
  EXPECT_FALSE(check(one_step).empty());
}

// Replicas meet before an update, to reduce: one that comes there only after a forward, which waits for the other,
// never comes.
TEST(PipedreamSchedule, ReplicasThatNeverMeetAreRefused) {
  Schedule schedule = pipedream_schedule({1, 2}, 4, 1, Versions::stash);
  const auto parse = [](int stage, const std::string& line) {
    std::vector<Action> actions;
    for (std::size_t at = 0; at < line.size(); at += 3) {
      const auto operation = static_cast<Operation>(std::string("FBIWU").find(line[at]));
      actions.push_back({operation, stage, line[at + 1] - '0'});
    }
    return actions;
  };
  schedule.ranks = {parse(0, "F0 F1 B0 U0 B1 U1 F2 B2 U2 F3 B3 U3"), parse(1, "F0 B0 U0 F2 B2 U1"),
                    parse(1, "F1 B1 F3 U0 B3 U1")};
  const auto problems = check(schedule);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("rank 1 waits at 1REDUCE_GRAD0 for 1F3 of rank 2"), std::string::npos) << problems[0];
}

TEST(PipedreamSchedule, RefusesWhatCannotBeAndNamesTheNearestThatCan) {
  const auto make = [](const std::vector<int>& replicas, int batch, Versions versions) {
    return [=] { static_cast<void>(pipedream_schedule(replicas, 12, batch, versions)); };
  };
  EXPECT_TRUE(
      fails_with<UsageError>({"at least 4 micro-batches per batch"}, make(straight(4), 3, Versions::two_buffers)));
  EXPECT_TRUE(
      fails_with<UsageError>({"at least 6 micro-batches per batch"}, make({2, 2, 1}, 4, Versions::two_buffers)));
  EXPECT_TRUE(fails_with<UsageError>({"`microbatches` 2 or 4"}, make({2, 1}, 3, Versions::flush)));
  EXPECT_TRUE(fails_with<UsageError>({"`microbatches` 3,"}, make({3, 1}, 1, Versions::vertical)));
  EXPECT_TRUE(fails_with<UsageError>({"at least 1"}, make({2, 0}, 1, Versions::stash)));
  EXPECT_TRUE(fails_with<UsageError>({"at least 1"}, make({}, 1, Versions::stash)));
  EXPECT_TRUE(fails_with<UsageError>({"at least 1"}, make({1}, 0, Versions::stash)));
}

TEST(PipedreamSchedule, TakesTheLeastBatchAndNoSmallerOne) {
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{1}, {1, 1, 1}, {2, 1}, {2, 2, 1}, {3, 1}, {2, 3}}) {
    for (const Versions versions : kAll) {
      const int least = min_batch(replicas, versions);
      EXPECT_EQ(pipedream_schedule(replicas, 2 * least, least, versions).batch, least);
      if (least > 1) {
        EXPECT_THROW(static_cast<void>(pipedream_schedule(replicas, 2 * least, least - 1, versions)), UsageError);
      }
    }
  }
  EXPECT_EQ(min_batch({1, 1, 1, 1}, Versions::two_buffers), 4);
  EXPECT_EQ(min_batch({2, 2, 1}, Versions::two_buffers), 6);
  EXPECT_EQ(min_batch({2, 3}, Versions::flush), 6);
}

TEST(Ledger, HasTheVersionsAndDelaysOfThePapers) {
  for (const int p : {1, 2, 3, 4, 8}) {
    const int m = p;  // micro-batches of a batch, for 2bw and flush
    for (const Versions versions : kAll) {
      const bool whole = versions == Versions::two_buffers || versions == Versions::flush;
      const Schedule schedule = lower(pipedream_schedule(straight(p), 40 * (whole ? m : 1), whole ? m : 1, versions));
      const Ledger ledger = make_ledger(schedule, versions);
      const auto peaks = peak_versions(schedule, ledger);
      const auto delays = delays_of(schedule, ledger);
      for (int s = 0; s < p; ++s) {
        const auto at = static_cast<std::size_t>(s);
        // In the order of the policies.
        const int most[] = {p - s, p, 2, 1, 1};
        const int delay[] = {p - 1 - s, p - 1, 1, 0, p - 1 - s};
        const auto policy = static_cast<std::size_t>(versions);
        EXPECT_EQ(peaks[at], most[policy]) << to_string(versions) << ", stage " << s << " of " << p;
        EXPECT_EQ(delays[at].back(), delay[policy]) << to_string(versions) << ", stage " << s << " of " << p;
        EXPECT_EQ(delays[at].front(), 0);
        EXPECT_EQ(largest_delays(schedule, ledger)[at], delay[policy]);
      }
    }
  }
}

TEST(Ledger, LetsABackwardUseTheVersionOfItsForward) {
  for (const Versions versions : kAll) {
    const Schedule schedule = lower(pipedream_schedule({2, 1, 1}, 40, 8, versions));
    const Ledger ledger = make_ledger(schedule, versions);
    int differ = 0;
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      std::vector<int> forward(static_cast<std::size_t>(schedule.microbatches));
      for (std::size_t place = 0; place < schedule.ranks[r].size(); ++place) {
        const Action& action = schedule.ranks[r][place];
        if (action.operation == Operation::forward) {
          forward[static_cast<std::size_t>(action.microbatch)] = ledger[r][place];
        } else if (action.operation == Operation::backward) {
          differ += forward[static_cast<std::size_t>(action.microbatch)] != ledger[r][place] ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(differ > 0, versions == Versions::none) << to_string(versions);
  }
}

TEST(Ledger, OfReplicasHasWarmUpPlusOneVersions) {
  const auto peaks = [](const std::vector<int>& replicas) {
    const Schedule schedule = lower(pipedream_schedule(replicas, 60, 1, Versions::stash));
    return peak_versions(schedule, make_ledger(schedule, Versions::stash));
  };
  EXPECT_EQ(peaks({2, 1}), (std::vector{2, 2, 1}));
  EXPECT_EQ(peaks({3, 1}), (std::vector{2, 2, 2, 1}));
  EXPECT_EQ(peaks({2, 2, 1}), (std::vector{3, 3, 2, 2, 1}));
}

TEST(Ledger, IsShownAsATable) {
  const Schedule schedule = lower(pipedream_schedule({1, 1}, 3, 1, Versions::stash));
  const Ledger ledger = make_ledger(schedule, Versions::stash);
  EXPECT_EQ(to_csv(schedule, ledger).substr(0, 56), "rank,action,version\n0,0F0,0\n0,0F1,0\n0,0B0,0\n0,0U0,1\n0,0F");
  const std::string text = to_text(schedule, ledger);
  EXPECT_NE(text.find("          1   F  0 B  0    F  1 B  1"), std::string::npos) << text;
  EXPECT_NE(text.find("stage 0       0  1  1\n"), std::string::npos) << text;
}

TEST(Ledger, CountsWeightsAndActivationsTogether) {
  const Schedule schedule = lower(pipedream_schedule(straight(2), 10, 1, Versions::stash));
  const auto bytes = peak_bytes(schedule, make_ledger(schedule, Versions::stash), {100, 10}, {1, 5});
  EXPECT_EQ(bytes, (std::vector<double>{2 * 100 + 1 + 100, 10 + 10}));  // at the end of a backward
}

// The longer the stream, the less the filling and draining at its ends weigh.
TEST(PipedreamSchedule, IdleShareGoesToZeroWithTheMicroBatches) {
  const Costs costs = Costs::uniform(4, 1, 1, 1);
  double before = 1;
  for (const int microbatches : {1, 10, 100, 1000}) {
    const auto idle_with = [&](Versions versions) {
      return simulate(lower(pipedream_schedule(straight(4), microbatches, 4, versions)), costs).idle;
    };
    const double idle = idle_with(Versions::stash);
    EXPECT_NEAR(idle, 3.0 / (microbatches + 3), 1e-12);
    EXPECT_LT(idle, before);
    before = idle;
    EXPECT_DOUBLE_EQ(idle_with(Versions::two_buffers), idle);
  }
  EXPECT_LT(before, 0.004);
  EXPECT_NEAR(simulate(lower(pipedream_schedule(straight(4), 1000, 4, Versions::flush)), costs).idle, 3.0 / 7, 1e-12);
}

TEST(PipedreamSchedule, ReplicasShareTheWorkOfASlowStage) {
  Costs costs = Costs::uniform(2, 1, 1, 0);
  costs.forward = {2, 1};
  costs.backward = {2, 1};
  const auto seconds = [&](const std::vector<int>& replicas) {
    return simulate(lower(pipedream_schedule(replicas, 400, 1, Versions::stash)), costs).seconds / 400;
  };
  EXPECT_NEAR(seconds({1, 1}), 4, 0.05);  // the slowest stage
  EXPECT_NEAR(seconds({2, 1}), 2, 0.05);  // all ranks are busy
  costs.average = {0.5, 9};               // once for two micro-batches; a stage of one rank has nothing to average
  EXPECT_NEAR(seconds({2, 1}), 2.25, 0.05);
  costs.update = {0.5, 0.5, 0};
  EXPECT_NEAR(seconds({2, 1}), 2.5, 0.05);
}

/// Whether all ranks reach the end of `schedule` when none but rank 0 begins a batch before rank 0 has announced it:
/// that is when rank 0 itself is `ahead` batches before it.
bool reaches_the_end(const Schedule& schedule, int ahead) {
  std::vector<std::size_t> next(schedule.ranks.size());
  MessageGrid<char> sent(schedule);
  int announced = -1;
  const auto can_run = [&](std::size_t r, const Action& action) {
    if (r != 0 && batches_of(schedule, action).end - 1 > announced) {
      return false;
    }
    if (action.operation == Operation::reduce_grad) {  // its replicas are there, or past it
      for (int replica = 0; replica < schedule.replicas_of(action.stage); ++replica) {
        const auto rank = static_cast<std::size_t>(schedule.rank_of(action.stage, replica));
        const auto& actions = schedule.ranks[rank];
        if (std::find(actions.begin(), actions.begin() + static_cast<std::ptrdiff_t>(next[rank]) + 1, action) ==
            actions.begin() + static_cast<std::ptrdiff_t>(next[rank]) + 1) {
          return false;
        }
      }
    }
    const auto receive = receive_before(schedule, action);
    return !receive || sent.at(*receive) != 0;
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t r = 0; r < next.size(); ++r) {
      while (next[r] < schedule.ranks[r].size() && can_run(r, schedule.ranks[r][next[r]])) {
        const Action& action = schedule.ranks[r][next[r]++];
        if (is_send(action.operation)) {
          sent.at(receive_of(action)) = 1;
        }
        announced = r == 0 ? std::max(announced, batches_of(schedule, action).end - 1 + ahead) : announced;
        goes_on = true;
      }
    }
  }
  for (std::size_t r = 0; r < next.size(); ++r) {
    if (next[r] < schedule.ranks[r].size()) {
      return false;
    }
  }
  return true;
}

// Chapter 4 stops so: nobody has posted a receive for a batch that is left out.
TEST(PipedreamSchedule, RankZeroMayAnnounceBatchesAheadOfTime) {
  int needed = 0;  // tables that would come to a halt without it
  for (const std::vector<int>& replicas : std::vector<std::vector<int>>{
           {1}, {1, 1}, {1, 1, 1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {2, 3, 1}, {1, 1, 4}, {3, 1, 1, 1}, {3}}) {
    for (const Versions versions : kAll) {
      for (const int batch : {1, 2, 4, 6, 12}) {
        for (const int receives : {0, 1, 4, 16}) {
          if (batch < min_batch(replicas, versions) || batch % min_batch(replicas, Versions::flush) != 0) {
            continue;  // is refused, or a batch that replicas do not share evenly
          }
          const Schedule schedule =
              lower(pipedream_schedule(replicas, 14 * batch - batch / 2, batch, versions), {.receives = receives});
          EXPECT_TRUE(reaches_the_end(schedule, batches_ahead(schedule))) << fmt::format(
              "{} on {}, {} per batch, {} receives", to_string(versions), fmt::join(replicas, ","), batch, receives);
          needed += reaches_the_end(schedule, 0) ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(needed, 10);
  EXPECT_EQ(batches_ahead(lower(pipedream_schedule(straight(4), 30, 1, Versions::stash), {.receives = 0})), 3);
  EXPECT_EQ(batches_ahead(lower(pipedream_schedule(straight(4), 30, 3, Versions::flush), {.receives = 0})), 0);
}

}  // namespace
}  // namespace stagecoach
