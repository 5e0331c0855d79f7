#include "parallel/data_parallel/same_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>

#include "core/autograd/grad_mode.h"
#include "core/error.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {
namespace {

/// Returns one line per tensor.
std::string list_of(const NamedTensors& tensors) {
  std::string list;
  for (const auto& [name, tensor] : tensors) {
    list += fmt::format("'{}' {}{}\n", name, name_of(tensor.dtype()), to_string(tensor.shape()));
  }
  return list;
}

std::string line_of(std::istringstream& list) {
  std::string line;
  return std::getline(list, line) ? line : "no further tensor";
}

void require_equal(int rank, const std::string& theirs, const std::string& ours) {
  std::istringstream their_list(theirs);
  std::istringstream our_list(ours);
  while (theirs != ours) {
    const std::string their_line = line_of(their_list);
    const std::string our_line = line_of(our_list);
    STAGECOACH_CHECK(
        their_line == our_line,
        "ranks train different models: rank 0 has {2}, rank {0} has {1}; start all ranks with the same flags and data",
        rank, their_line, our_line);
  }
}

}  // namespace

void require_same_tensors(const NamedTensors& tensors, Communicator& comm) {
  const std::string mine = list_of(tensors);
  const std::vector<std::string> all = gather_texts(comm, mine);  // on rank 0; its exception ends all ranks
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    require_equal(static_cast<int>(rank), all[rank], mine);
  }
  comm.barrier();
}

void broadcast_tensors(const NamedTensors& tensors, Communicator& comm) {
  const NoGrad no_grad;
  for (auto [name, tensor] : tensors) {
    comm.broadcast(tensor, 0);
  }
}

void broadcast_module(const Module& model, Communicator& comm) {
  for (const NamedTensors& tensors : {model.named_parameters(), model.named_buffers()}) {
    require_same_tensors(tensors, comm);
    broadcast_tensors(tensors, comm);
  }
}

NamedTensors without_repeats(const NamedTensors& tensors) {
  std::unordered_set<const void*> seen;
  NamedTensors once;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(once),
               [&](const auto& named) { return seen.insert(named.second.id()).second; });
  return once;
}

}  // namespace stagecoach
