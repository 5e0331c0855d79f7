#pragma once
/// @file
/// The layers of a model whose tokens are cut over ranks: all but attention are whole, and compute on this rank's
/// tokens.

#include <functional>

#include "nn/layer_factory.h"
#include "parallel/sequence_parallel/sequence_attention.h"

namespace stagecoach {

class SequenceLayers final : public LayerFactory {
 public:
  /// Makes the layers of one rank. `comm` must outlive them. All ranks run them together, forward and backward.
  SequenceLayers(Communicator& comm, SequenceExchange exchange)
      : attend_([exchange, group = TensorGroup{comm.size(), comm.rank(), &comm}](const Tensor& qkv, std::int64_t heads,
                                                                                 AttentionMask mask) {
          return sequence_attention(qkv, heads, mask, exchange, group);
        }) {}
  /// Makes the layers of the oracle: one device with all tokens, which computes attention as `ranks` ranks do.
  SequenceLayers(int ranks, SequenceExchange exchange)
      : attend_([exchange, ranks](const Tensor& qkv, std::int64_t heads, AttentionMask mask) {
          return sliced_attention(qkv, heads, mask, exchange, ranks);
        }) {}
  std::shared_ptr<Module> attention(std::int64_t heads, AttentionMask mask) const override;

 private:
  std::function<Tensor(const Tensor& qkv, std::int64_t heads, AttentionMask mask)> attend_;
};

}  // namespace stagecoach
