#include "parallel/data_parallel/sharded/sharded_norm.h"

#include <algorithm>

#include "core/kernels/fixed_order_sum.h"
#include "nn/clip_grad_norm.h"

namespace stagecoach {
namespace {

using Numbers = std::vector<std::int64_t>;  // of blocks, which are numbered through the parameters of a unit

/// Returns the number of each parameter's first block, and at the end that of all blocks.
Numbers first_blocks(const FlatParameters& flat) {
  Numbers firsts{0};
  for (const auto& [name, parameter] : flat.parameters()) {
    firsts.push_back(firsts.back() + (parameter.numel() + kSquaresBlock - 1) / kSquaresBlock);
  }
  return firsts;
}

/// Returns the blocks in which a shard ends that the next one continues.
Numbers cut_blocks(const FlatParameters& flat, const Numbers& firsts, int ranks) {
  Numbers cut;
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t end = rank * flat.part();
    const auto after = std::upper_bound(flat.offsets().begin(), flat.offsets().end(), end);
    const auto parameter = static_cast<std::size_t>(after - flat.offsets().begin()) - 1;
    const std::int64_t element = end - flat.offsets()[parameter];
    const std::int64_t block = firsts[parameter] + element / kSquaresBlock;
    const bool is_inside = element < flat.parameters()[parameter].second.numel();  // not in the zeros at the end
    if (is_inside && element % kSquaresBlock != 0 && (cut.empty() || cut.back() != block)) {
      cut.push_back(block);
    }
  }
  return cut;
}

}  // namespace

std::vector<double> sums_of_squares(const FlatParameters& flat, const std::vector<Tensor>& gradients,
                                    const ShardGroups& groups) {
  Communicator& comm = groups.shards();
  const Numbers firsts = first_blocks(flat);
  const Numbers cut = cut_blocks(flat, firsts, comm.size());
  const auto rows = static_cast<std::int64_t>(cut.size());
  Tensor collected = Tensor::zeros({rows, kSquaresBlock}, DType::float32, comm.device());  // the cut blocks
  Numbers own;          // the blocks that this rank adds
  NamedTensors blocks;  // their elements
  for (std::size_t s = 0; s < gradients.size(); ++s) {
    const std::size_t parameter = flat.whole_of_shards()[s];
    const std::int64_t begin = comm.rank() * flat.part() + flat.shard_offsets()[s] - flat.offsets()[parameter];
    const std::int64_t end = begin + gradients[s].numel();  // in the whole parameter
    for (std::int64_t block = begin / kSquaresBlock; block * kSquaresBlock < end; ++block) {
      const std::int64_t first = std::max(begin, block * kSquaresBlock);
      const Shape shape{std::min(end, (block + 1) * kSquaresBlock) - first};
      const Tensor elements = gradients[s].alias(shape, gradients[s].offset() + first - begin);
      const std::int64_t number = firsts[parameter] + block;
      const auto row = std::find(cut.begin(), cut.end(), number);
      if (row == cut.end()) {
        own.push_back(number);
        blocks.emplace_back("block", elements);
      } else {
        collected.alias(shape, (row - cut.begin()) * kSquaresBlock + first - block * kSquaresBlock).copy_from(elements);
      }
    }
  }
  if (rows > 0) {
    comm.all_reduce(collected);  // each element, and zeros
  }
  for (std::int64_t row = 0; comm.rank() == 0 && row < rows; ++row) {
    own.push_back(cut[static_cast<std::size_t>(row)]);
    blocks.emplace_back("block", collected.narrow(row, 1));  // zeros after a last block add nothing
  }
  std::vector<double> all(static_cast<std::size_t>(firsts.back()));
  const std::vector<double> squares = sums_of_squares(blocks);
  for (std::size_t i = 0; i < own.size(); ++i) {
    all[static_cast<std::size_t>(own[i])] = squares[i];
  }
  Tensor of_all_ranks = Tensor::from(all, {firsts.back()}, comm.device());
  comm.all_reduce(of_all_ranks);
  if (comm.device().type != DeviceType::meta) {  // a plan clips nothing
    all = of_all_ranks.to_vector<double>();
  }
  std::vector<double> sums;
  for (std::size_t i = 0; i + 1 < firsts.size(); ++i) {
    const double* block = all.data() + firsts[i];
    sums.push_back(warp_sum(firsts[i + 1] - firsts[i], [=](std::int64_t b) { return block[b]; }));
  }
  return sums;
}

}  // namespace stagecoach
