#include "core/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/base/error.h"

namespace stagecoach {
namespace {

std::atomic<std::uint64_t> next_sequence = 0;

}  // namespace

Node::Node(const char* name, std::vector<Tensor> inputs)
    : name_(name), sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {
  for (const Tensor& input : inputs) {
    Edge edge;
    if (input.defined() && input.requires_grad()) {
      if (input.is_leaf()) {
        edge.leaf = input;
      } else {
        edge.node = input.grad_node();
      }
    }
    edges_.push_back(std::move(edge));
  }
}

Node::Node(InPlaceOf replaced)
    : name_(replaced.other.name_),
      sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)),
      edges_(replaced.other.edges_) {}

void Node::save(const char* name, const Tensor& tensor) { saved_.push_back({name, tensor.detach(), tensor.version()}); }

Tensor Node::saved(const char* name) const {
  const auto found = std::find_if(saved_.begin(), saved_.end(),
                                  [&](const Saved& entry) { return std::strcmp(entry.name, name) == 0; });
  STAGECOACH_CHECK(found != saved_.end(), "backward of {}: no tensor was saved as '{}'; save it in the forward", name_,
                   name);
  check_version(*found);
  return found->tensor;
}

void Node::check_version(const Saved& entry) const {
  STAGECOACH_CHECK(UncheckedVersions::is_active() || entry.tensor.version() == entry.version,
                   "backward of {}: the saved tensor '{}' ({}) was modified after the forward: expected version {}, "
                   "got {}; run the backward before the modification, or write the new values to new storage",
                   name_, entry.name, describe(entry.tensor), entry.version, entry.tensor.version());
}

void Node::check_versions() const {
  std::for_each(saved_.begin(), saved_.end(), [&](const Saved& entry) { check_version(entry); });
}

void Node::renew_versions() {
  for (Saved& entry : saved_) {
    entry.version = entry.tensor.version();
  }
}

void Node::release() {
  saved_.clear();
  released_ = true;
}

bool should_record(std::initializer_list<const Tensor*> inputs) {
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(),
                                       [](const Tensor* input) { return input->defined() && input->requires_grad(); });
}

}  // namespace stagecoach
