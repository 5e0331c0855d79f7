#include "chapters/common/bug_hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "parallel/comm/passing_communicator.h"

namespace stagecoach {
namespace {

/// Returns its input. Its gradient is `factor` times as large.
class GradientFactor final : public Module {
 public:
  explicit GradientFactor(double factor) : factor_(factor) {}
  Tensor forward(const Tensor& x) override {
    return grad_enabled() ? add(scale(x, factor_), scale(x.detach(), 1 - factor_)) : x;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  double factor_;
};

/// Returns its input, and clears the gradients of `model`, which must outlive it.
class GradientWiper final : public Module {
 public:
  explicit GradientWiper(const Sequential& model) : model_(model) {}
  Tensor forward(const Tensor& x) override {
    if (grad_enabled()) {
      for (auto& [name, parameter] : model_.named_parameters()) {
        parameter.zero_grad();
      }
    }
    return x;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  const Sequential& model_;
};

/// Has a linear layer, and returns its input.
class UnusedLayer final : public Module {
 public:
  UnusedLayer() { add_child("head", std::make_shared<Linear>(8, 8)); }
  Tensor forward(const Tensor& x) override { return x; }
  Shape output_shape(const Shape& input) const override { return input; }
};

/// Runs layers, and in training without a graph, which is the first forward of a recomputed stage, runs them twice. So
/// batch norm's statistics move as often as if the second forward, the one with a graph, moved them too.
class TwiceWithoutGraph final : public Module {
 public:
  explicit TwiceWithoutGraph(const std::shared_ptr<Sequential>& layers) : layers_(layers) {
    add_child("layers", layers);
  }
  Tensor forward(const Tensor& x) override {
    if (is_training() && !grad_enabled()) {
      layers_->forward(x);
    }
    return layers_->forward(x);
  }
  Shape output_shape(const Shape& input) const override { return layers_->output_shape(input); }

 private:
  std::shared_ptr<Sequential> layers_;
};

/// Bug::send_order: a send returns when its receiver has the message.
class WaitingSends final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    const PendingSend pending = PassingCommunicator::send_async(tensor, to, tag);
    pending.wait();
    return pending;
  }
};

/// Bug::tag_twice: activations have one tag, and gradients another, whatever their stage and micro-batch. (The
/// chapters' tags are even for activations and odd for gradients.)
class OneTagPerDirection final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  PendingSend send_async(const Tensor& tensor, int to, int tag) override {
    return PassingCommunicator::send_async(tensor, to, tag % 2);
  }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    return PassingCommunicator::receive_async(shape, dtype, from, tag % 2);
  }
};

/// Bug::own_seed: a rank keeps its own weights where those of rank 0 are broadcast.
class WithoutWeightBroadcasts final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  void broadcast(Tensor& tensor, int root) override {
    if (tensor.dtype() != DType::float32) {
      PassingCommunicator::broadcast(tensor, root);
    }
  }
};

/// Sums of two tensors come in the reverse order: the first waits for the second.
class SwappedSums final : public PassingCommunicator {
 public:
  explicit SwappedSums(std::unique_ptr<Communicator> comm) : PassingCommunicator(*comm), owned_(std::move(comm)) {}
  void all_reduce(Tensor& tensor) override {
    if (!late_.defined()) {
      late_ = tensor;
      return;
    }
    PassingCommunicator::all_reduce(tensor);
    PassingCommunicator::all_reduce(late_);
    late_ = {};
  }

 private:
  std::unique_ptr<Communicator> owned_;
  Tensor late_;
};

/// Weights that are in memory are not gathered where they are: the other ranks' shards stay as they were.
class StaleGathers final : public PassingCommunicator {
 public:
  explicit StaleGathers(std::unique_ptr<Communicator> comm) : PassingCommunicator(*comm), owned_(std::move(comm)) {}
  void all_gather_into(Tensor& whole, const Tensor& part) override {
    if (part.storage() != whole.storage()) {
      PassingCommunicator::all_gather_into(whole, part);
    }
  }

 private:
  std::unique_ptr<Communicator> owned_;
};

/// Copies of the weights that are cut over groups of ranks (ShardGroups) are not summed over the groups.
class LoneCopies final : public PassingCommunicator {
 public:
  explicit LoneCopies(std::unique_ptr<Communicator> comm) : PassingCommunicator(*comm), owned_(std::move(comm)) {}
  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto ranks = PassingCommunicator::split(colour, key);
    return ++splits_ == 2 ? std::make_unique<WithoutSums>(std::move(ranks)) : std::move(ranks);
  }

 private:
  class WithoutSums final : public PassingCommunicator {
   public:
    explicit WithoutSums(std::unique_ptr<Communicator> comm) : PassingCommunicator(*comm), owned_(std::move(comm)) {}
    void all_reduce(Tensor& /*tensor*/) override {}

   private:
    std::unique_ptr<Communicator> owned_;
  };
  std::unique_ptr<Communicator> owned_;
  int splits_ = 0;  // the first gives the group, the second the ranks with the same part
};

/// The thread that communicates while the rank's own thread computes does so by a `Changed` communicator.
/// Bug::bucket_order: it reduces the first bucket after the second. Bug::stale_weights: it gathers too little.
/// Bug::lone_copies: it sums too little.
template <class Changed>
class WithCommThread final : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  std::unique_ptr<Communicator> duplicate() override {
    return std::make_unique<Changed>(PassingCommunicator::duplicate());
  }
};

/// Swaps the first two receives of gradients in a rank's list of actions.
void swap_first_receives(std::vector<Action>& actions) {
  const auto is_gradient = [](const Action& action) { return action.operation == Operation::receive_backward; };
  const auto first = std::find_if(actions.begin(), actions.end(), is_gradient);
  if (first == actions.end()) {
    return;
  }
  const auto second = std::find_if(first + 1, actions.end(), is_gradient);
  if (second != actions.end()) {
    std::iter_swap(first, second);
  }
}

}  // namespace

void put_bug_into(Settings& settings) {
  if (settings.training.inject == Bug::rate_per_rank) {
    settings.training.lr *= settings.world.ranks;
  }
}

void put_bug_into(Schedule& schedule, Bug bug) {
  if (bug == Bug::send_order) {
    schedule.sends_wait = true;
  } else if (bug == Bug::tag_twice) {
    swap_first_receives(schedule.ranks.front());
  }
}

void put_bug_into(Versions& versions, Bug bug) {
  if (bug == Bug::unstashed_weights) {
    versions = Versions::none;
  }
}

void put_bug_into(Sequential& model, const TrainingSettings& training) {
  if (training.inject == Bug::gradient_sum) {
    model.add("gradient_sum", std::make_shared<GradientFactor>(static_cast<double>(training.microbatches)));
  } else if (training.inject == Bug::wiped_gradients) {
    model.add("wiped_gradients", std::make_shared<GradientWiper>(model));
  } else if (training.inject == Bug::unused_parameter) {
    model.add("auxiliary", std::make_shared<UnusedLayer>());
  }
}

void put_bug_into(RunOptions& options, Bug bug, const Communicator* comm) {
  if (bug != Bug::none) {
    options.notes.push_back(fmt::format("this run has the bug '{}' of docs/bugs.md", name_of(bug)));
  }
  if (bug == Bug::stale_shard && comm != nullptr && comm->rank() + 1 == comm->size()) {
    options.epochs_behind = 1;
  }
}

std::shared_ptr<Sequential> with_bug(const std::shared_ptr<Sequential>& layers, Bug bug) {
  if (bug != Bug::norm_twice) {
    return layers;
  }
  const auto twice = std::make_shared<Sequential>();
  twice->add("twice", std::make_shared<TwiceWithoutGraph>(layers));
  return twice;
}

std::uint64_t weight_seed(const TrainingSettings& training, int rank) {
  return training.seed + (training.inject == Bug::own_seed ? static_cast<std::uint64_t>(rank) : 0);
}

MicroBatchLoader make_rank_loader(Settings settings, const Dataset& data, LoaderFor purpose, const Rank& rank,
                                  MicroBatchLoader::Needs needs, std::int64_t microbatches, Shard shard) {
  const Bug bug = settings.training.inject;
  const bool trains = purpose == LoaderFor::training;
  if (bug == Bug::other_labels) {
    settings.training.seed += static_cast<std::uint64_t>(rank.index);
  }
  if (bug == Bug::same_shard && trains) {
    shard.index = 0;
  }
  MicroBatchLoader loader(settings, data, purpose, rank.device, needs, microbatches, shard);
  if (bug == Bug::skipped_step && trains && rank.index == 1) {
    loader.leave_out(2);
  }
  return loader;
}

std::unique_ptr<Communicator> communicator_with(Bug bug, Communicator& comm) {
  switch (bug) {
    case Bug::send_order:
      return std::make_unique<WaitingSends>(comm);
    case Bug::tag_twice:
      return std::make_unique<OneTagPerDirection>(comm);
    case Bug::own_seed:
      return std::make_unique<WithoutWeightBroadcasts>(comm);
    case Bug::bucket_order:
      return comm.rank() == 1 ? std::make_unique<WithCommThread<SwappedSums>>(comm) : nullptr;
    case Bug::stale_weights:
      return std::make_unique<WithCommThread<StaleGathers>>(comm);
    case Bug::lone_copies:
      return std::make_unique<WithCommThread<LoneCopies>>(comm);
    default:
      return nullptr;
  }
}

}  // namespace stagecoach
