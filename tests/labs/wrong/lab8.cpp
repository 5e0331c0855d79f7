#include "tests/labs/wrong/lab8.h"

#include <memory>

#include "chapters/08_tensor_parallel/lab/conjugate.h"
#include "core/autograd/node.h"
#include "core/ops.h"

namespace stagecoach::labs::lab8 {
namespace {

using lab::LinearPair;

/// Returns the sum of the ranks' x times `factor`, written over x if `in_place`.
Tensor reduced(const Tensor& x, Communicator& comm, double factor = 1, bool in_place = false) {
  Tensor sum = in_place ? x.alias(x.shape(), x.offset()) : x.clone();
  comm.all_reduce(sum);
  return factor == 1 ? sum : scale(sum, factor);
}

// Wrong operations.

enum class Does { nothing, nothing_to_itself, sum, mean, sum_in_place, share };

Tensor apply(Does what, const Tensor& x, Communicator& comm) {
  const double share = 1.0 / comm.size();
  switch (what) {
    case Does::sum:
      return reduced(x, comm);
    case Does::mean:
      return reduced(x, comm, share);
    case Does::sum_in_place:
      return reduced(x, comm, 1, true);
    case Does::share:
      return scale(x, share);
    case Does::nothing_to_itself:
      return x;
    case Does::nothing:
      break;
  }
  return x.alias(x.shape(), x.offset());
}

enum class Records { as_needed, never, always };

struct OperationMistakes {
  Does forward;
  Does backward;
  Records records = Records::as_needed;
};

class WrongConjugate final : public Node {
 public:
  WrongConjugate(const Tensor& x, Communicator& comm, Does backward)
      : Node("wrong_conjugate", {x}), comm_(comm), backward_(backward) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const NoGrad no_grad;
    return {apply(backward_, grad, comm_)};
  }

 private:
  Communicator& comm_;
  Does backward_;
};

Tensor wrong_operation(const Tensor& x, Communicator& comm, const OperationMistakes& wrong) {
  const bool records = wrong.records == Records::always || (wrong.records == Records::as_needed && should_record({&x}));
  Tensor y;
  {
    const NoGrad no_grad;
    y = apply(wrong.forward, x, comm);
  }
  if (records) {
    y.set_grad_node(std::make_shared<WrongConjugate>(x, comm, wrong.backward));
  }
  return y;
}

// Wrong slices.

LinearPair leaves(LinearPair pair) {
  for (Tensor* tensor : {&pair.a, &pair.a_bias, &pair.b, &pair.b_bias}) {
    *tensor = tensor->detach();
    tensor->set_requires_grad(true);
  }
  return pair;
}

/// Returns features rank, rank + ranks, … of a tensor of features [H, …].
Tensor every_other(const Tensor& whole, int rank, int ranks) {
  std::vector<Tensor> rows;
  for (std::int64_t i = rank; i < whole.size(0); i += ranks) {
    rows.push_back(whole.narrow(i, 1));
  }
  return cat(rows);
}

LinearPair round_robin(const LinearPair& whole, int rank, int ranks) {
  return leaves({every_other(whole.a, rank, ranks), every_other(whole.a_bias, rank, ranks),
                 transpose(every_other(transpose(whole.b), rank, ranks)), whole.b_bias.clone()});
}

LinearPair views(const LinearPair& whole, int rank, int ranks) {
  const std::int64_t n = whole.a.size(0) / ranks;
  return leaves({whole.a.narrow(rank * n, n), whole.a_bias.narrow(rank * n, n), narrow_columns(whole.b, rank * n, n),
                 whole.b_bias.clone()});
}

LinearPair whole_bias(const LinearPair& whole, int rank, int ranks) {
  LinearPair mine = lab::cut_pair(whole, rank, ranks);
  mine.a_bias = whole.a_bias.clone();
  mine.a_bias.set_requires_grad(true);
  return mine;
}

LinearPair cuts_last_bias(const LinearPair& whole, int rank, int ranks) {
  LinearPair mine = lab::cut_pair(whole, rank, ranks);
  mine.b_bias = scale(whole.b_bias, 1.0 / ranks);
  mine.b_bias.set_requires_grad(true);
  return mine;
}

LinearPair first_slice(const LinearPair& whole, int /*rank*/, int ranks) { return lab::cut_pair(whole, 0, ranks); }

LinearPair constants(const LinearPair& whole, int rank, int ranks) {
  LinearPair mine = lab::cut_pair(whole, rank, ranks);
  mine.a.set_requires_grad(false);
  return mine;
}

// Wrong forwards.

struct PairMistakes {
  bool without_f = false;
  bool without_g = false;
  bool swaps = false;             ///< g before the pair, f after it
  bool bias_on_each = false;      ///< b_bias is added before the sum
  bool bias_on_first = false;     ///< by rank 0 only
  bool sums_hidden = false;       ///< also the hidden features
  bool sums_bias = false;         ///< the gradient of b_bias, as of data parallel replicas
  bool without_f_on_one = false;  ///< rank 0 leaves f out
};

Tensor wrong_forward(const Tensor& x, const LinearPair& mine, Communicator& comm, const PairMistakes& wrong) {
  const auto f = [&](const Tensor& t) { return lab::copy_to_ranks(t, comm); };
  const auto g = [&](const Tensor& t) { return lab::sum_over_ranks(t, comm); };
  const bool skips_f = wrong.without_f || (wrong.without_f_on_one && comm.rank() == 0);
  Tensor hidden = linear(skips_f ? x : wrong.swaps ? g(x) : f(x), mine.a, mine.a_bias);
  hidden = relu(wrong.sums_hidden ? g(hidden) : hidden);
  const bool adds_first = wrong.bias_on_each || (wrong.bias_on_first && comm.rank() == 0);
  const Tensor part = linear(hidden, mine.b, adds_first ? mine.b_bias : Tensor());
  const Tensor y = wrong.without_g ? part : wrong.swaps ? f(part) : g(part);
  if (wrong.bias_on_each || wrong.bias_on_first) {
    return y;
  }
  return add_broadcast(y, wrong.sums_bias ? f(mine.b_bias) : mine.b_bias);
}

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  const Answer right{lab::copy_to_ranks, lab::sum_over_ranks, lab::cut_pair, lab::pair_forward};
  std::vector<WrongAnswer<Answer>> answers;
  const auto add_answer = [&](const char* name, const char* mistake, const char* criterion) -> Answer& {
    return answers.emplace_back(WrongAnswer<Answer>{name, mistake, criterion, right}).answer;
  };
  const auto operation = [](const OperationMistakes& wrong) {
    return [wrong](const Tensor& x, Communicator& comm) { return wrong_operation(x, comm, wrong); };
  };
  const auto forward = [](const PairMistakes& wrong) {
    return [wrong](const Tensor& x, const LinearPair& mine, Communicator& comm) {
      return wrong_forward(x, mine, comm, wrong);
    };
  };
  const char* const f = "f: the elements of x, and the sum of the ranks' gradients";
  const char* const g = "g: the sum of the ranks' x, and the gradient as it is";
  const char* const writes = "f and g write to nothing that they are given";
  const char* const needed = "f and g record and send only what is needed";
  const char* const slices = "slices: this rank's hidden features, in memory of their own";
  const char* const output = "pair: the output equals that of one device";
  const char* const gradients = "pair: gradients equal those of one device, on every rank";
  const char* const calls = "pair: one all-reduce forward and one backward";
  add_answer("f_forgets_sum", "The backward of f does not sum.", f).copy_to_ranks =
      operation({Does::nothing, Does::nothing});
  add_answer("f_mean", "The backward of f divides by the number of ranks.", f).copy_to_ranks =
      operation({Does::nothing, Does::mean});
  add_answer("f_sums_forward", "f sums x, which all ranks have already.", f).copy_to_ranks =
      operation({Does::sum, Does::sum});
  add_answer("g_sums_twice", "The backward of g sums gradients that are equal on all ranks.", g).sum_over_ranks =
      operation({Does::sum, Does::sum});
  add_answer("g_mean", "g computes the mean.", g).sum_over_ranks = operation({Does::mean, Does::nothing});
  add_answer("g_shares_gradient", "The backward of g divides the gradient by the number of ranks.", g).sum_over_ranks =
      operation({Does::sum, Does::share});
  add_answer("g_no_node", "The result of g has no history, so no gradient comes back.", g).sum_over_ranks =
      operation({Does::sum, Does::nothing, Records::never});
  add_answer("g_overwrites", "g writes its sum over x.", writes).sum_over_ranks =
      operation({Does::sum_in_place, Does::nothing});
  add_answer("f_overwrites", "The backward of f writes its sum over the gradient that it is given.", writes)
      .copy_to_ranks = operation({Does::nothing, Does::sum_in_place});
  add_answer("f_same_tensor", "The result of f is x itself, which gets the node of f.", writes).copy_to_ranks =
      operation({Does::nothing_to_itself, Does::sum});
  add_answer("always_records", "f records a node also where gradients are disabled.", needed).copy_to_ranks =
      operation({Does::nothing, Does::sum, Records::always});
  add_answer("round_robin", "Hidden features are distributed round-robin, not in blocks.", slices).cut_pair =
      round_robin;
  add_answer("first_slice", "Every rank has the first slice.", slices).cut_pair = first_slice;
  add_answer("views", "The slices of a are views, which keep the whole tensors in memory.", slices).cut_pair = views;
  add_answer("whole_bias", "Every rank has all of a_bias.", slices).cut_pair = whole_bias;
  add_answer("cuts_last_bias", "Every rank has b_bias divided by the number of ranks.", slices).cut_pair =
      cuts_last_bias;
  add_answer("constants", "The slice of a requires no gradient.", slices).cut_pair = constants;
  add_answer("bias_on_each", "Each rank adds b_bias to its summand.", output).pair_forward =
      forward({.bias_on_each = true});
  add_answer("without_g", "The summands are not added up.", output).pair_forward = forward({.without_g = true});
  add_answer("swaps", "f and g are swapped.", output).pair_forward = forward({.swaps = true});
  add_answer("sums_hidden", "The hidden features are summed, although each rank has others.", output).pair_forward =
      forward({.sums_hidden = true});
  add_answer("bias_on_first", "Only rank 0 adds b_bias, so the other ranks have no gradient of it.", gradients)
      .pair_forward = forward({.bias_on_first = true});
  add_answer("without_f", "f is missing, so each rank has its part of the gradient of x.", gradients).pair_forward =
      forward({.without_f = true});
  add_answer("sums_bias", "The gradient of b_bias is summed, as in data parallel training.", gradients).pair_forward =
      forward({.sums_bias = true});
  add_answer("without_f_on_one", "Rank 0 leaves f out, and the others wait for it in the backward.", calls)
      .pair_forward = forward({.without_f_on_one = true});
  return answers;
}

}  // namespace stagecoach::labs::lab8
