#include <numeric>

#include "chapters/02_naive_model_parallel/lab/batch_step.h"
#include "chapters/02_naive_model_parallel/lab/shift.h"

namespace stagecoach::lab {

Tensor shift(Communicator& comm, const Tensor& mine, int distance) {
  const int p = comm.size();
  const int by = (distance % p + p) % p;  // C++'s % keeps the sign
  if (by == 0) {
    return mine;
  }
  const int to = (comm.rank() + by) % p;
  const int from = (comm.rank() - by + p) % p;
  constexpr int kTag = 0;
  // The ranks form circles: r, r + by, r + 2 by, … There are gcd(p, by) of them, and the ranks below that number are in
  // different ones. One rank of each circle receives first, so that its predecessor can send.
  const bool receives_first = comm.rank() < std::gcd(p, by);
  if (!receives_first) {
    comm.send(mine, to, kTag);
  }
  const Tensor other = comm.receive(mine.shape(), mine.dtype(), from, kTag);
  if (receives_first) {
    comm.send(mine, to, kTag);
  }
  return other;
}

double batch_step(const BatchStep& step) {
  enum Tag { kActivations, kGradients };
  constexpr int kWholeBatch = 0;
  Communicator& comm = step.comm;
  const int me = comm.rank();
  const int last = static_cast<int>(step.stage_to_rank.size()) - 1;
  const auto rank_of = [&](int stage) { return step.stage_to_rank[static_cast<std::size_t>(stage)]; };
  const auto shape = [&](int entered) { return step.entering[static_cast<std::size_t>(entered)]; };

  // `here` is what a stage of this rank has made, for the next one if that is here too.
  double loss = 0;
  Tensor here = step.images;
  for (int s = 0; s <= last; ++s) {
    if (rank_of(s) != me) {
      continue;
    }
    const Tensor x =
        s == 0 || rank_of(s - 1) == me ? here : comm.receive(shape(s), DType::float32, rank_of(s - 1), kActivations);
    if (s == last) {
      Tensor logits;
      loss = step.stages.at(s).forward_with_loss(kWholeBatch, x, step.labels, s > 0, &logits).item();
    } else {
      here = step.stages.at(s).forward(kWholeBatch, x, s > 0);
      if (rank_of(s + 1) != me) {
        comm.send(here, rank_of(s + 1), kActivations);
      }
    }
  }

  for (int s = last; s >= 0; --s) {
    if (rank_of(s) != me) {
      continue;
    }
    const double share = 1.0 / static_cast<double>(shape(0)[0]);
    const Tensor grad = s == last              ? Tensor::full({}, share, DType::float32, comm.device())
                        : rank_of(s + 1) == me ? here
                                               : comm.receive(shape(s + 1), DType::float32, rank_of(s + 1), kGradients);
    here = step.stages.at(s).backward(kWholeBatch, grad);
    if (s > 0 && rank_of(s - 1) != me) {
      comm.send(here, rank_of(s - 1), kGradients);
    }
  }
  return loss;
}

}  // namespace stagecoach::lab
