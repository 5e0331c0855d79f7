#pragma once
/// @file
/// Tied weights of a pipeline: the embedding of tokens is in the first stage, and the head, which is the same matrix,
/// in the last one. Source: Shoeybi et al., "Megatron-LM", 2019, whose two ranks all-reduce the gradient.

#include "nn/named_tensors.h"
#include "nn/optimizer.h"
#include "nn/tied_weights.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Does for pairs that are on two ranks of `comm`, one parameter on each, what tie() does for those of one rank. In
/// each step the rank of the copy sends its gradient, and then gets the new value: twice the bytes of the parameter,
/// and only one state of the optimizer. The result has the bits of one device. First sets the copies to the values of
/// the first ones.
///
/// `optimizer` updates `mine`, the parameters of this rank, without the copies. All ranks call it together, and later
/// the optimizer's step(). Pairs that are on one rank are not touched. Throws Error for a parameter that several ranks
/// hold.
void tie_ranks(Optimizer& optimizer, const NamedTensors& mine, const TiedWeights::Names& names, Communicator& comm);

}  // namespace stagecoach
