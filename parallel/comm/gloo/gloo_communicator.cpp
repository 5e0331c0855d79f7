#include "parallel/comm/gloo/gloo_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/uncounted_memory.h"
#include "parallel/comm/tcp/control_channel.h"

namespace stagecoach {
namespace {

constexpr std::size_t kFirstBytes = 4096;  // bytes
constexpr std::size_t kFirstPayload = kFirstBytes - sizeof(MessageHeader);

bool fits_in_first(const Tensor& tensor) { return tensor.bytes() <= kFirstPayload; }

/// Adds a value to a hash. Slots are hashes of 64 bits, of which two that are in use at once are never equal in
/// practice. (The mixing is that of SplitMix64.)
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

std::uint64_t mixed(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char letter : text) {
    hash = mixed(hash, static_cast<unsigned char>(letter));
  }
  return hash;
}

constexpr std::uint64_t kNotGloos = std::uint64_t{1} << 63;  // Gloo's own collectives use small slots

/// Returns the slot of the second message of a tensor, whose type it depends on.
std::uint64_t rest_slot(std::uint64_t first_slot, const Tensor& tensor) {
  std::uint64_t hash = mixed(first_slot, static_cast<std::uint64_t>(tensor.dtype()));
  for (const std::int64_t extent : tensor.shape()) {
    hash = mixed(hash, static_cast<std::uint64_t>(extent));
  }
  return hash | kNotGloos;
}

MessageHeader header_in(const GlooBuffer& first) {
  MessageHeader header;
  std::memcpy(&header, first.ptr, sizeof(header));
  return header;
}

void copy_payload(const GlooBuffer& first, Tensor& into) {
  if (into.bytes() > 0) {
    std::memcpy(into.raw_mutable_data(), static_cast<const std::byte*>(first.ptr) + sizeof(MessageHeader),
                into.bytes());
  }
}

}  // namespace

/// A message under way.
class GlooCommunicator::Send final : public Outgoing {
 public:
  /// The receiver writes to `completed_at` with the last of the messages, if times are computed.
  Send(GlooCommunicator& comm, std::vector<BufferPtr> messages, std::shared_ptr<const double> completed_at)
      : comm_(comm), messages_(std::move(messages)), completed_at_(std::move(completed_at)) {}

  double wait(const ErrorContext& context) override {
    for (const BufferPtr& message : messages_) {
      comm_.wait(*message, context);
    }
    return *completed_at_;
  }
  std::optional<double> completed_at() override {
    const auto context = [] { return "testing a pending message"; };
    comm_.receives_->advance();
    const bool is_done = std::all_of(messages_.begin(), messages_.end(),
                                     [&](const BufferPtr& message) { return comm_.mesh_.is_done(*message, context); });
    return is_done ? std::optional(*completed_at_) : std::nullopt;
  }

 private:
  GlooCommunicator& comm_;
  std::vector<BufferPtr> messages_;
  std::shared_ptr<const double> completed_at_;
};

class GlooCommunicator::Receive final : public Incoming, public TimedReceives::Posted {
 public:
  Receive(GlooCommunicator& comm, const Tensor& like, int from, int tag, const ErrorContext& context);
  ~Receive() override {
    if (!is_taken_) {
      comm_.receives_->withdraw(*this);
      withdraw();
    }
  }

  /// Returns, without waiting, whether the message's header has arrived.
  bool has_begun() override {
    return comm_.mesh_.is_done(*posted(first_slot_).buffer, [] { return "looking for a message"; });
  }
  double wait(const ErrorContext& context) override;
  Tensor take(const ErrorContext& /*context*/) override { return std::exchange(tensor_, {}); }

 private:
  LinkDirection::Send sent() const override { return header_in(*posted(first_slot_).buffer).send; }
  void answer(double completed_at) override;
  bool has_rest() const { return !fits_in_first(tensor_); }
  Lane& join(std::uint64_t slot) {
    Lane& lane = comm_.lanes_[slot];
    lane.receives.push_back(this);
    return lane;
  }
  std::size_t place_in(const Lane& lane) const {
    return static_cast<std::size_t>(std::find(lane.receives.begin(), lane.receives.end(), this) -
                                    lane.receives.begin());
  }
  PostedBuffer& posted(std::uint64_t slot) const {
    Lane& lane = comm_.lanes_.at(slot);
    return lane.buffers[place_in(lane)];
  }
  /// Leaves the lane, and takes this receive's buffer with it.
  PostedBuffer remove(std::uint64_t slot);
  /// Leaves the lane, whose later receives then get this one's buffer.
  void leave(std::uint64_t slot);
  void withdraw();

  GlooCommunicator& comm_;
  Tensor tensor_;
  int from_;
  int tag_;
  std::uint64_t first_slot_;
  std::uint64_t rest_slot_;
  bool is_taken_ = false;
};

GlooCommunicator::Receive::Receive(GlooCommunicator& comm, const Tensor& like, int from, int tag,
                                   const ErrorContext& context)
    : comm_(comm),
      tensor_(like),
      from_(from),
      tag_(tag),
      first_slot_(comm.slot_of(Kind::message, from, tag)),
      rest_slot_(rest_slot(first_slot_, like)) {
  if (Lane& lane = join(first_slot_); lane.buffers.size() < lane.receives.size()) {
    lane.buffers.push_back(comm_.post_first(first_slot_, from, context));
  }
  if (has_rest()) {
    if (Lane& lane = join(rest_slot_); lane.buffers.size() < lane.receives.size()) {
      lane.buffers.push_back(comm_.post_rest(rest_slot_, like, from, context));
    }
  }
  if (comm_.computes_times()) {
    comm_.receives_->expect(*this, comm_.direction_from(from), comm_.clock().now());
  }
}

void GlooCommunicator::Receive::answer(double completed_at) {
  const auto time = std::make_shared<double>(completed_at);
  comm_.keep(comm_.mesh_.start(GlooBuffer::Direction::out, comm_.member(from_),
                               comm_.slot_of(Kind::completed, comm_.rank(), tag_), time, time.get(), sizeof(*time),
                               [] { return "acknowledging a message"; }));
}

double GlooCommunicator::Receive::wait(const ErrorContext& context) {
  const BufferPtr first = posted(first_slot_).buffer;
  comm_.wait(*first, context);
  const MessageHeader expected("receive", tensor_);
  if (const MessageHeader got = header_in(*first); !got.is_of_same_type(expected)) {
    throw unexpected(context(), expected.type(), got.type());
  }
  comm_.receives_->advance();
  if (has_rest()) {
    comm_.wait(*posted(rest_slot_).buffer, context);
    tensor_ = remove(rest_slot_).tensor;
  } else {
    copy_payload(*first, tensor_);
  }
  remove(first_slot_);
  is_taken_ = true;
  return comm_.computes_times() ? arrival() : comm_.clock().now();
}

GlooCommunicator::PostedBuffer GlooCommunicator::Receive::remove(std::uint64_t slot) {
  Lane& lane = comm_.lanes_.at(slot);
  const auto buffer = lane.buffers.begin() + static_cast<std::ptrdiff_t>(place_in(lane));
  PostedBuffer posted = std::move(*buffer);
  lane.buffers.erase(buffer);
  leave(slot);
  return posted;
}

void GlooCommunicator::Receive::leave(std::uint64_t slot) {
  Lane& lane = comm_.lanes_.at(slot);
  lane.receives.erase(lane.receives.begin() + static_cast<std::ptrdiff_t>(place_in(lane)));
  if (lane.receives.empty() && lane.buffers.empty()) {
    comm_.lanes_.erase(slot);
  }
}

void GlooCommunicator::Receive::withdraw() {
  const bool has_begun = posted(first_slot_).buffer->has_ended();
  if (has_begun) {  // this message is lost: what follows it goes to later receives
    remove(first_slot_);
  } else {
    leave(first_slot_);
  }
  if (has_rest() && has_begun) {
    comm_.mesh_.leak(remove(rest_slot_).buffer);
  } else if (has_rest()) {
    leave(rest_slot_);
  }
}

GlooCommunicator::GlooCommunicator(GlooMesh& mesh, Group group, std::shared_ptr<TimedReceives> receives)
    : ExchangeCommunicator(std::move(group)),
      mesh_(mesh),
      name_(mixed(this->group().name)),
      receives_(std::move(receives)) {}

GlooCommunicator::~GlooCommunicator() {
  for (const BufferPtr& sent : sent_) {
    mesh_.leak(sent);
  }
  for (const auto& [slot, lane] : lanes_) {
    for (const PostedBuffer& posted : lane.buffers) {
      mesh_.leak(posted.buffer);
    }
  }
}

std::uint64_t GlooCommunicator::slot_of(Kind kind, int from, int tag) const {
  const std::uint64_t of_sender = mixed(mixed(name_, static_cast<std::uint64_t>(kind)), static_cast<unsigned>(from));
  return mixed(of_sender, static_cast<unsigned>(tag)) | kNotGloos;
}

std::vector<GlooCommunicator::BufferPtr> GlooCommunicator::send(Kind kind, const MessageHeader& header,
                                                                const Tensor& tensor, int to, int tag,
                                                                const ErrorContext& context) {
  const std::uint64_t slot = slot_of(kind, rank(), tag);
  const std::size_t payload = fits_in_first(tensor) ? tensor.bytes() : 0;
  const auto first = std::make_shared<std::vector<std::byte>>(sizeof(header) + payload);
  std::memcpy(first->data(), &header, sizeof(header));
  if (payload > 0) {
    std::memcpy(first->data() + sizeof(header), tensor.raw_data(), payload);
  }
  constexpr auto kOut = GlooBuffer::Direction::out;
  std::vector<BufferPtr> started{mesh_.start(kOut, member(to), slot, first, first->data(), first->size(), context)};
  if (!fits_in_first(tensor)) {
    // Memory that does not count is freed whenever Gloo has ended.
    const auto memory = std::make_shared<Tensor>(UncountedMemory::is_active() ? tensor.clone() : tensor);
    started.push_back(mesh_.start(kOut, member(to), rest_slot(slot, tensor), memory,
                                  const_cast<void*>(memory->raw_data()), tensor.bytes(), context));  // only read
  }
  std::for_each(started.begin(), started.end(), [this](const BufferPtr& message) { keep(message); });
  return started;
}

void GlooCommunicator::keep(const BufferPtr& sent) {
  while (!sent_.empty() && sent_.front()->has_ended()) {
    sent_.pop_front();
  }
  sent_.push_back(sent);
}

void GlooCommunicator::wait(GlooBuffer& buffer, const ErrorContext& context) {
  mesh_.wait(buffer, wait_policy(), context, [this] { receives_->advance(); });
}

GlooCommunicator::PostedBuffer GlooCommunicator::post_first(std::uint64_t slot, int from, const ErrorContext& context) {
  const auto memory = std::make_shared<std::vector<std::byte>>(kFirstBytes);
  return {mesh_.start(GlooBuffer::Direction::in, member(from), slot, memory, memory->data(), memory->size(), context)};
}

GlooCommunicator::PostedBuffer GlooCommunicator::post_rest(std::uint64_t slot, const Tensor& into, int from,
                                                           const ErrorContext& context) {
  const auto memory = std::make_shared<Tensor>(into);
  return {mesh_.start(GlooBuffer::Direction::in, member(from), slot, memory, memory->raw_mutable_data(),
                      memory->bytes(), context),
          into};
}

std::shared_ptr<GroupCommunicator::Outgoing> GlooCommunicator::start_send(const Tensor& tensor, int to, int tag,
                                                                          const ErrorContext& context) {
  const MessageHeader header("send", tensor, time_of_send(bytes_of(tensor), to));
  std::vector<BufferPtr> messages = send(Kind::message, header, tensor, to, tag, context);
  const auto completed_at = std::make_shared<double>(0);
  if (computes_times()) {  // the receiver answers with the time of receipt
    messages.push_back(mesh_.start(GlooBuffer::Direction::in, member(to), slot_of(Kind::completed, to, tag),
                                   completed_at, completed_at.get(), sizeof(*completed_at), context));
    keep(messages.back());
  }
  return std::make_shared<Send>(*this, std::move(messages), completed_at);
}

std::shared_ptr<GroupCommunicator::Incoming> GlooCommunicator::post_receive(const Shape& shape, DType dtype,
                                                                            Device device, int from, int tag,
                                                                            const ErrorContext& context) {
  return std::make_shared<Receive>(*this, Tensor::empty(shape, dtype, device), from, tag, context);
}

void GlooCommunicator::exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) {
  const auto context = [&] { return error_context(operation); };
  struct Peer {
    int rank;
    PostedBuffer first;
    PostedBuffer rest;
    std::vector<BufferPtr> sent;
  };
  std::vector<Peer> peers;
  // Starts with the next rank, so that not all ranks send to the same rank at once.
  for (int i = 1; i < size(); ++i) {
    Peer& peer = peers.emplace_back(Peer{(rank() + i) % size(), {}, {}, {}});
    const PeerBuffers& buffer = buffers[static_cast<std::size_t>(peer.rank)];
    const std::uint64_t slot = slot_of(Kind::exchange, peer.rank, 0);
    if (buffer.in.defined()) {
      peer.first = post_first(slot, peer.rank, context);
    }
    if (buffer.in.defined() && !fits_in_first(buffer.in)) {
      peer.rest = post_rest(rest_slot(slot, buffer.in), buffer.in, peer.rank, context);
    }
    if (buffer.out.defined()) {
      peer.sent = send(Kind::exchange, header_of(operation, like, buffer.out), buffer.out, peer.rank, 0, context);
    }
  }
  try {
    for (const Peer& peer : peers) {
      if (peer.first.buffer != nullptr) {
        receive(operation, like, peer.first, peer.rest, buffers[static_cast<std::size_t>(peer.rank)].in, peer.rank);
      }
      for (const BufferPtr& sent : peer.sent) {
        wait(*sent, context);
      }
    }
  } catch (...) {
    for (const Peer& peer : peers) {  // messages may still arrive there
      mesh_.leak(peer.first.buffer);
      mesh_.leak(peer.rest.buffer);
    }
    throw;
  }
}

void GlooCommunicator::receive(const char* operation, const Tensor& like, const PostedBuffer& first,
                               const PostedBuffer& rest, Tensor& into, int from) {
  const auto context = [&] { return error_context(operation); };
  wait(*first.buffer, context);
  require_same(operation, like, into, header_in(*first.buffer), from);
  if (rest.buffer != nullptr) {
    wait(*rest.buffer, context);
  } else {
    copy_payload(*first.buffer, into);
  }
}

bool GlooCommunicator::sum_natively(Tensor& tensor) {
  const auto context = [&] { return error_context("all_reduce"); };
  // Gloo would need connections of its own for a part of the ranks, and its wait answers no senders.
  return size() == mesh_.size() && !computes_times() &&
         mesh_.all_reduce(tensor, static_cast<std::uint32_t>(name_), context);
}

std::string GlooCommunicator::number_key(int from, int tag) const {
  return fmt::format("{}/number/{}/{}", group().name, from, tag);
}

void GlooCommunicator::start_number(double number, int to, int tag, const ErrorContext& /*context*/) {
  const LinkDirection::Send when = time_of_send(sizeof(number), to);
  mesh_.control().post(member(to), number_key(rank(), tag), fmt::format("{:.17g} {}", number, when.number));
}

double GlooCommunicator::wait_for_number(int from, int tag, const ErrorContext& context) {
  ControlWait control_wait(mesh_.control(), wait_policy().stop, context, &wait_policy().renewed);
  std::optional<double> number;
  while (!(number = poll_number(from, tag, context))) {
    receives_->advance();
    control_wait.poll();
  }
  return *number;
}

std::optional<double> GlooCommunicator::poll_number(int from, int tag, const ErrorContext& /*context*/) {
  const std::optional<std::string> text = mesh_.control().take(number_key(from, tag));
  if (!text) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(text->c_str(), &end);
  if (computes_times()) {
    LinkDirection& direction = direction_from(from);
    direction.match({.number = std::strtoll(end, nullptr, 10)}, direction.post(clock().now()));
  }
  return number;
}

std::unique_ptr<Communicator> GlooCommunicator::make_part(Group part) {
  return std::make_unique<GlooCommunicator>(mesh_, std::move(part), receives_);
}

std::unique_ptr<Communicator> GlooCommunicator::make_duplicate(Group copy) {
  return std::make_unique<GlooCommunicator>(mesh_, std::move(copy), std::make_shared<TimedReceives>());
}

}  // namespace stagecoach
