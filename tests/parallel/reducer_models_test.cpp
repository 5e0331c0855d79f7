// Models that need care: parameters that a step does not use, that are shared or frozen, gradients that accumulate.
// Each trains on three ranks what one device trains that runs the ranks' parts one after the other.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "parallel/data_parallel/reducer.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/training_record.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::expect_equal;
using test::fails_with;
using test::kSteps;
using test::note;
using test::random_tensor;
using test::Record;

constexpr std::size_t kOneBucket = std::numeric_limits<std::size_t>::max();

/// Three branches behind a common layer; which of them run is chosen before each forward. `a` and `b` may share their
/// weights.
class Branches final : public Module {
 public:
  explicit Branches(bool tied) {
    add_child("trunk", trunk_);
    add_child("a", a_);
    b_ = tied ? a_ : std::make_shared<Linear>(6, 6);
    add_child("b", b_);
    add_child("c", c_);
    add_child("head", head_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = trunk_->forward(x);
    if (use.find('a') != std::string::npos) {
      y = add(y, a_->forward(y));
    }
    if (use.find('b') != std::string::npos) {
      y = add(y, b_->forward(relu(y)));
    }
    if (use.find('c') != std::string::npos) {
      y = add(y, c_->forward(y));
    }
    return head_->forward(y);
  }
  Shape output_shape(const Shape& input) const override { return head_->output_shape(trunk_->output_shape(input)); }
  std::string use = "abc";

 private:
  std::shared_ptr<Module> trunk_ = std::make_shared<Linear>(5, 6);
  std::shared_ptr<Module> a_ = std::make_shared<Linear>(6, 6);
  std::shared_ptr<Module> b_;
  std::shared_ptr<Module> c_ = std::make_shared<Linear>(6, 6);
  std::shared_ptr<Module> head_ = std::make_shared<Linear>(6, 3);
};

/// For gtest, which would show the bytes.
struct Special;
void PrintTo(const Special& special, std::ostream* out);

/// A training with something special about it: `backwards` a step, and what is set before each.
struct Special {
  const char* name;
  bool tied = false;
  bool find_unused = false;
  int backwards = 1;
  BucketCaps caps = {1, 1};
  /// The branches that a rank uses in a step's backward.
  std::string (*use)(int rank, int step, int backward) = [](int, int, int) { return std::string("abc"); };
  /// Whether a rank trains the parameter.
  bool (*trains)(int rank, const std::string& parameter) = [](int, const std::string&) { return true; };
};

void PrintTo(const Special& special, std::ostream* out) { *out << special.name; }

constexpr int kWorld = 3;

std::string different_branches(int rank, int step, int) {
  constexpr const char* kUses[] = {"a", "b", "ab", ""};  // nobody uses c
  return kUses[(rank + step) % 4];
}

const Special kSpecials[] = {
    {.name = "OtherBranchesOnEachRank", .find_unused = true, .use = different_branches},
    {.name = "OtherBranchesInOneBucket",
     .find_unused = true,
     .caps = {kOneBucket, kOneBucket},
     .use = different_branches},
    {.name = "TiedWeights", .tied = true},
    {.name = "TiedWeightsOfWhichOneIsUsed", .tied = true, .find_unused = true, .use = different_branches},
    {.name = "AFrozenHalf", .trains = [](int, const std::string& name) { return name[0] == 'b' || name[0] == 'h'; }},
    {.name = "OtherHalvesFrozenOnEachRank",
     .trains = [](int rank, const std::string& name) { return (name.back() + rank) % 2 == 0 || name[0] == 'h'; }},
    {.name = "Accumulation", .backwards = 3},
    {.name = "AccumulationInLargeBuckets", .backwards = 3, .caps = {100, 400}},
    {.name = "AccumulationOverOtherBranches",
     .find_unused = true,
     .backwards = 2,
     .use = [](int rank, int step, int backward) { return different_branches(rank, step + backward, 0); }},
};

/// The loss of one backward: a rank has four samples of twelve in each.
void run_special(Branches& model, const Special& special, int rank, int step, int part,
                 const std::function<void(const Tensor& loss)>& before_backward, Device device) {
  model.use = special.use(rank, step, part);
  const Tensor x = random_tensor({4, 5}, fmt::format("x {} {} {}", rank, step, part), DType::float32, device);
  const Tensor target = random_tensor({4, 3}, fmt::format("y {} {} {}", rank, step, part), DType::float32, device);
  const Tensor loss = mean_squared_error(model.forward(x), target, Reduction::sum);
  before_backward(loss);
  backward(loss, Tensor::full({}, 1.0 / (12 * special.backwards), DType::float32, device));
}

void freeze(const Module& model, const Special& special, int rank) {
  for (auto [name, parameter] : model.named_parameters()) {
    parameter.set_requires_grad(special.trains(rank, name));
  }
}

/// The gradients that one device gets if it runs the ranks' parts one after the other, each rank's summed first.
Record special_on_one_device(const Special& special) {
  Branches model(special.tied);
  model.materialize(3);
  const NamedTensors parameters = without_repeats(model.named_parameters());
  const auto optimizer = make_optimizer(OptimizerKind::sgd, parameters, 0.1, 0.9);
  Record record;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Tensor> sums(parameters.size());
    for (int r = 0; r < kWorld; ++r) {
      freeze(model, special, r);
      for (int part = 0; part < special.backwards; ++part) {
        run_special(model, special, r, step, part, [](const Tensor&) {}, {});
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        Tensor parameter = parameters[i].second;
        if (const Tensor mine = parameter.grad(); mine.defined()) {
          sums[i] = sums[i].defined() ? add(sums[i], mine) : mine;
        }
        parameter.zero_grad();
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor parameter = parameters[i].second;
      parameter.set_grad(sums[i]);
    }
    note(record, *optimizer);
  }
  return record;
}

class ReducerOn : public ::testing::TestWithParam<Special> {};
INSTANTIATE_TEST_SUITE_P(Model, ReducerOn, ::testing::ValuesIn(kSpecials),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ReducerOn, EqualsOneDevice) {
  const Special& special = GetParam();
  const Record wanted = special_on_one_device(special);
  launch({.ranks = kWorld}, [&](Rank& rank) {
    Branches model(special.tied);
    model.materialize(3, rank.device);
    const auto optimizer = make_optimizer(OptimizerKind::sgd, without_repeats(model.named_parameters()), 0.1, 0.9);
    freeze(model, special, rank.index);
    Reducer reducer(model.named_parameters(), rank.comm, {.caps = special.caps, .find_unused = special.find_unused});
    Record record;
    for (int step = 0; step < kSteps; ++step) {
      for (int part = 0; part < special.backwards; ++part) {
        const auto sync = part + 1 == special.backwards ? Reducer::Sync::yes : Reducer::Sync::no;
        run_special(
            model, special, rank.index, step, part,
            [&](const Tensor& loss) {
              reducer.begin(sync, {&loss, 1});
            },
            rank.device);
      }
      reducer.finish();
      note(record, *optimizer);
    }
    expect_equal(record, wanted);
  });
}

/// Two ranks of which rank 1 does not use branch c.
void run_with_an_unused_branch(bool find_unused) {
  launch({.ranks = 2, .timeout = 60}, [&](Rank& rank) {
    Branches model(false);
    model.materialize(3, rank.device);
    model.use = rank.index == 0 ? "abc" : "ab";
    Reducer reducer(model.named_parameters(), rank.comm, {.caps = {1, 1}, .find_unused = find_unused});
    const Tensor y = model.forward(random_tensor({4, 5}, "x", DType::float32, rank.device));
    reducer.begin(Reducer::Sync::yes, {&y, 1});
    backward(y, Tensor::full(y.shape(), 1, DType::float32, rank.device));
    reducer.finish();
  });
}

TEST(Reducer, NamesAParameterThatIsNotUsed) {
  EXPECT_TRUE(fails_with<Error>({"rank 1", "got none for", "'c.weight'", "'c.bias'", "`find_unused`"},
                                [] { run_with_an_unused_branch(false); }));
  run_with_an_unused_branch(true);
}

}  // namespace
}  // namespace stagecoach
