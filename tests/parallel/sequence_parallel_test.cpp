// What sequence parallelism saves: each rank keeps its share of the tokens that layer norms have as inputs.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "nn/models.h"
#include "parallel/launch/launch.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"
#include "tests/parallel/worlds.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;

constexpr std::int64_t kSequences = 5;

/// Returns the bytes that the layer norms of a model keep for the backward.
std::int64_t kept_by_norms(const Tensor& output) {
  std::int64_t bytes = 0;
  for (const auto& node : recorded_nodes(output)) {
    for (const Node::Saved& saved : node->saved()) {
      if (node->name() == std::string("layer_norm") && saved.name == std::string("input")) {
        bytes += static_cast<std::int64_t>(saved.tensor.bytes());
      }
    }
  }
  return bytes;
}

TEST(SequenceParallelNorms, KeepTheirShareOfTheActivations) {
  STAGECOACH_NEEDS_RANKS(4);
  launch(test::world_of(4), [](Rank& rank) {
    const auto kept = [&](SequenceParallel sequence) {
      const auto model = make_model("vit", {.image_size = 16,
                                            .sizes = {.depth = 2, .width = 16, .heads = 4},
                                            .layers = std::make_shared<TensorParallelLayers>(rank.comm, sequence)});
      model->materialize(3, rank.device);
      return kept_by_norms(model->forward(random_tensor({kSequences, 3, 16, 16}, "x", DType::float32, rank.device)));
    };
    EXPECT_EQ(kept(SequenceParallel::no), 5 * kSequences * 16 * 16 * 4);
    EXPECT_EQ(4 * kept(SequenceParallel::yes), kept(SequenceParallel::no));
  });
}

TEST(SequenceParallelNorms, TakeTheirShareOfTheMemory) {
  STAGECOACH_NEEDS_RANKS(4);
  launch(test::world_of(4), [](Rank& rank) {
    // The ranks draw weights and inputs on cpu:0, the device of rank 0, and copy them: it counts while none of them
    // does.
    const auto allocated = [&] {
      rank.comm.barrier();
      const std::size_t bytes = allocator(rank.device).stats().current_bytes;
      rank.comm.barrier();
      return bytes;
    };
    // What the allocator has given for the input and all that the graph keeps.
    const auto bytes_of = [&](SequenceParallel sequence, std::int64_t tokens) {
      const auto norm = TensorParallelLayers(rank.comm, sequence).token_norm(64);
      norm->materialize(3, rank.device);
      const std::size_t before = allocated();
      const Tensor x = random_tensor({8, tokens, 64}, "x", DType::float32, rank.device);
      const std::shared_ptr<Node> graph = norm->forward(x).grad_node();
      return allocated() - before;
    };
    const std::size_t whole = bytes_of(SequenceParallel::no, 64);
    EXPECT_GE(whole, 8U * 64 * 64 * sizeof(float));
    EXPECT_EQ(4 * bytes_of(SequenceParallel::yes, 64 / 4), whole);
  });
}

}  // namespace
}  // namespace stagecoach
