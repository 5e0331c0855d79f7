#include "parallel/data_parallel/same_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/base/parse.h"
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

void require_equal(std::size_t rank, const std::string& theirs, const std::string& ours) {
  if (theirs == ours) {
    return;
  }
  const auto their_lines = split_text(theirs, '\n');  // each list ends with an empty line
  const auto our_lines = split_text(ours, '\n');
  const auto [their_line, our_line] = std::mismatch(their_lines.begin(), their_lines.end(), our_lines.begin());
  constexpr std::string_view kEnd = "no further tensor";
  fail(fmt::format(
      "ranks train different models: rank 0 has {2}, rank {0} has {1}; start all ranks with the same flags and data",
      rank, their_line->empty() ? kEnd : *their_line, our_line->empty() ? kEnd : *our_line));
}

}  // namespace

void require_same_tensors(const NamedTensors& tensors, Communicator& comm) {
  require_same_lines(list_of(tensors), comm);
}

void require_same_lines(const std::string& lines, Communicator& comm) {
  if (comm.device().type == DeviceType::meta) {
    return;  // a plan has one model
  }
  const std::vector<std::string> all = gather_texts(comm, lines);  // on rank 0; its exception ends all ranks
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    require_equal(rank, all[rank], lines);
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
