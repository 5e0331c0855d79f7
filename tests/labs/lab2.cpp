#include "tests/labs/lab2.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/labs/class_settings.h"
#include "tests/labs/tiny_training.h"
#include "tests/labs/watched_ranks.h"

namespace stagecoach::labs::lab2 {
namespace {

constexpr const char* kShift = "chapters/02_naive_model_parallel/lab/shift.h";
constexpr const char* kCircles =
    "chapters/02_naive_model_parallel/lab/README.md, \"What to check on paper first\", questions 1 and 2";
constexpr const char* kStep = "chapters/02_naive_model_parallel/lab/batch_step.h; chapter 2, \"The idea\"";

int ranks() { return varied("lab 2: ranks", 4, 6); }
std::int64_t batch() { return varied("lab 2: batch", 6, 12); }

// The shift.

/// Calls the answer on p ranks and throws Failed unless each gets the right tensor. Returns the messages.
std::vector<Message> shift_by(const Answer& answer, int p, int distance, Calls calls) {
  constexpr std::int64_t kLength = 3;
  set_case(fmt::format("{} ranks and distance {}", p, distance));
  std::vector<Tensor> got(static_cast<std::size_t>(p));
  const std::vector<Message> messages = run_watched(
      p,
      [&](Communicator& comm) {
        const Tensor mine = Tensor::full({kLength}, comm.rank(), DType::float32, comm.device());
        got[static_cast<std::size_t>(comm.rank())] = answer.shift(comm, mine, distance);
      },
      calls == Calls::any ? kCircles : kShift, calls);
  for (int rank = 0; rank < p; ++rank) {
    const int from = ((rank - distance) % p + p) % p;
    const Tensor& mine = got[static_cast<std::size_t>(rank)];
    const bool has_form = mine.defined() && mine.shape() == Shape{kLength} && mine.dtype() == DType::float32;
    if (!has_form || mine.to_vector<float>()[0] != static_cast<float>(from)) {
      throw Failed(fmt::format("rank {} gets the tensor of rank {}{}", rank, from, for_case()),
                   has_form ? fmt::format("that of rank {}", mine.to_vector<float>()[0]) : describe(mine), kShift);
    }
  }
  return messages;
}

void shifts_by_one(const Answer& answer) {
  for (int p = 2; p <= ranks(); ++p) {
    shift_by(answer, p, 1, Calls::any);
  }
}

void shifts_by_any_distance(const Answer& answer) {
  for (int p = 1; p <= ranks() + 2; ++p) {
    for (int distance = -p - 1; distance <= p + 1; ++distance) {
      shift_by(answer, p, distance, Calls::any);
    }
  }
}

void shifts_with_waiting_calls(const Answer& answer) {
  const int p = ranks();
  for (const int distance : {1, 2, p}) {
    const std::vector<Message> messages = shift_by(answer, p, distance, Calls::waiting_only);
    const std::size_t expected = distance % p == 0 ? 0 : static_cast<std::size_t>(p);
    if (messages.size() != expected) {
      throw Failed(fmt::format("{} messages for {} ranks and distance {}", expected, p, distance),
                   std::to_string(messages.size()), kShift);
    }
  }
}

// The batch.

/// Trains with stages on these ranks and compares with one device. Returns the messages.
std::vector<Message> train(const Answer& answer, const std::vector<int>& stage_to_rank, const char* look_at,
                           int steps = 3, bool wants_no_gradient_of_images = false) {
  const auto step = [&](const RankPart& part) {
    std::vector<Shape> entering;
    for (const Shape& shape : part.entering) {
      entering.push_back(shape.with(0, batch()));
    }
    return answer.batch_step({.comm = part.comm,
                              .stage_to_rank = stage_to_rank,
                              .stages = part.stages,
                              .entering = entering,
                              .images = part.images.empty() ? Tensor() : part.images[0],
                              .labels = part.labels.empty() ? Tensor() : part.labels[0]});
  };
  return require_equal_to_one_device({stage_to_rank, {batch()}, steps, wants_no_gradient_of_images}, step, look_at);
}

std::vector<int> straight(int p) {
  std::vector<int> placement(static_cast<std::size_t>(p));
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}

void straight_stages_train(const Answer& answer) {
  train(answer, {0, 1}, kStep);
  train(answer, straight(ranks()), kStep);
}

void stages_in_any_order_train(const Answer& answer) {
  train(answer, {1, 0}, kStep);
  std::vector<int> placement = straight(ranks());
  std::reverse(placement.begin(), placement.end());
  train(answer, placement, kStep);
  std::swap(placement.front(), placement[1]);
  train(answer, placement, kStep);
}

void several_stages_per_rank_train(const Answer& answer) {
  train(answer, {0, 1, 0}, kStep);
  train(answer, {0, 0, 1, 1}, kStep);
  train(answer, {0, 1, 2, 2, 1, 0}, kStep);
  train(answer, {1, 0, 1, 1, 0}, kStep);
}

void one_rank_trains(const Answer& answer) { train(answer, {0, 0, 0}, kStep); }

void does_what_is_needed(const Answer& answer) {
  constexpr int kSteps = 1;
  for (const auto& placement : {straight(ranks()), std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0}}) {
    const std::vector<Message> messages = train(answer, placement, kStep, kSteps, true);
    std::size_t borders = 0;
    for (std::size_t s = 1; s < placement.size(); ++s) {
      borders += placement[s] != placement[s - 1] ? 1 : 0;
    }
    if (messages.size() != 2 * borders) {
      throw Failed(fmt::format("{} messages with stages on ranks {}: two for each border between ranks", 2 * borders,
                               fmt::join(placement, ",")),
                   std::to_string(messages.size()), kStep);
    }
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const char* const kAnyDistance = "they shift by any distance";
  const auto with = [&answer](void (*check)(const Answer&)) { return [answer, check] { check(answer); }; };
  return {
      {"all ranks shift by one without a deadlock", 15, with(shifts_by_one), kShift},
      {kAnyDistance, 15, with(shifts_by_any_distance), kShift},
      {"they use calls that wait, and one message each", 10, with(shifts_with_waiting_calls), kShift, {kAnyDistance}},
      {"a batch through stages in order trains what one device trains", 20, with(straight_stages_train), kStep},
      {"the stages may be on any ranks", 15, with(stages_in_any_order_train), kStep},
      {"one rank may hold several stages", 10, with(several_stages_per_rank_train), kStep},
      {"one rank may hold all stages", 5, with(one_rank_trains), kStep},
      {"nothing is sent or computed that is not needed", 10, with(does_what_is_needed), kStep},
  };
}

}  // namespace stagecoach::labs::lab2
