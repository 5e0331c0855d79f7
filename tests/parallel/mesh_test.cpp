// The ranks of a mesh: their positions, and the groups in each direction.

#include "parallel/launch/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using Groups = std::vector<std::vector<int>>;

// The groups that Megatron-LM's documentation lists for 16 GPUs on two machines (initialize_model_parallel, with 2
// tensor-parallel and 4 pipeline ranks).
TEST(MeshGroups, AreThoseThatMegatronLists) {
  const MeshSizes sizes = mesh_from_text("tp=2,pp=4,dp=2");
  const RankOrder order = rank_order_from_text("tp-dp-pp");
  EXPECT_EQ(order, RankOrder{}) << "the default";
  EXPECT_EQ(mesh_groups(MeshDirection::tensor, sizes, order),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(mesh_groups(MeshDirection::data, sizes, order),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(mesh_groups(MeshDirection::pipeline, sizes, order),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

TEST(MeshGroups, OfAnyOrderHoldEachRankOnce) {
  const MeshSizes sizes{.data = 3, .pipeline = 2, .tensor = 4};
  for (const char* text : {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"}) {
    const RankOrder order = rank_order_from_text(text);
    for (const MeshDirection direction : {MeshDirection::tensor, MeshDirection::data, MeshDirection::pipeline}) {
      std::vector<int> all;
      for (const auto& group : mesh_groups(direction, sizes, order)) {
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        all.insert(all.end(), group.begin(), group.end());
      }
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), 24U);
      for (int rank = 0; rank < 24; ++rank) {
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank) << text;
        EXPECT_EQ(rank_at(position_of(rank, sizes, order), sizes, order), rank) << text;
      }
    }
    EXPECT_EQ(mesh_groups(order.directions[0], sizes, order)[0][1], 1)
        << text << ": the first direction is the closest";
  }
}

TEST(RankOrder, NamesEachDirectionOnce) {
  for (const char* text : {"", "tp", "tp-dp", "tp-dp-dp", "tp-dp-pp-tp", "tp-dp-ep", "tp,dp,pp"}) {
    EXPECT_TRUE(fails_with<UsageError>({text, "tp-dp-pp"}, [&] { rank_order_from_text(text); })) << text;
  }
}

}  // namespace
}  // namespace stagecoach
