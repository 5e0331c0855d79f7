#include "parallel/comm/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

constexpr std::size_t kFirst = 4000;  // bytes of the first message: what MPIs hand over at once, whatever the link
constexpr std::size_t kLargest = std::size_t{1} << 30;  // MPI counts bytes in an int

enum Kind { kMessage, kTaken, kMeeting, kKinds };  // messages of different kinds do not meet

int mpi_tag(int tag, Kind kind) { return tag * kKinds + kind; }

void move_to(std::vector<MPI_Request>& all, std::vector<MPI_Request>& some) {
  all.insert(all.end(), some.begin(), some.end());
  some.clear();
}

bool is_on_gpu(const Tensor& tensor) { return tensor.device().type == DeviceType::cuda; }

}  // namespace

/// What a message is.
struct MpiCommunicator::Header {
  std::array<char, 32> operation{};
  std::int32_t dtype = 0;
  std::int32_t dims = 0;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  double arrival = 0;

  Header() = default;
  Header(const char* name, const Tensor& tensor, double time)
      : dtype(static_cast<std::int32_t>(tensor.dtype())), dims(tensor.dims()), arrival(time) {
    std::strncpy(operation.data(), name, operation.size() - 1);
    std::copy(tensor.shape().begin(), tensor.shape().end(), extents.begin());
  }
  std::string type() const { return type_of(Shape(extents.data(), dims), static_cast<DType>(dtype)); }
  bool is_like(const Header& other) const {
    return dtype == other.dtype && dims == other.dims && extents == other.extents;
  }
};

struct MpiCommunicator::Outgoing {
  std::array<std::byte, kFirst> first;
  Tensor tensor;
  std::vector<MPI_Request> requests;
  double taken_at = 0;
};

struct MpiCommunicator::Incoming {
  std::array<std::byte, kFirst> first;
  Tensor tensor;
  std::vector<MPI_Request> requests;

  Header header() const {
    Header header;
    std::memcpy(&header, first.data(), sizeof(header));
    return header;
  }
};

MpiCommunicator::MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, ThreadWorld::Waits waits)
    : ExchangeCommunicator(std::move(group)), world_(world), comm_(comm), patience_{waits, abandoned_.get_token()} {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  for (auto& message : sent_) {
    if (world_.failed() || !world_.are_done(message->requests)) {
      world_.bury(message);
    }
  }
  if (!world_.failed()) {
    MPI_Comm_free(&comm_);
  }
}

std::size_t MpiCommunicator::short_bytes() const { return kFirst - sizeof(Header); }

std::shared_ptr<MpiCommunicator::Outgoing> MpiCommunicator::post(const char* operation, const Tensor& like,
                                                                 const Tensor& tensor, int to, int tag) {
  auto message = std::make_shared<Outgoing>();
  message->tensor = tensor;
  const double arrival = clock().kind() == ClockKind::wall
                             ? 0
                             : clock().now() + clock().link().seconds(static_cast<double>(tensor.bytes()));
  const Header header(operation, like, arrival);
  std::memcpy(message->first.data(), &header, sizeof(header));
  const auto words = [&] { return doing(operation, "to", to, tag); };
  const std::size_t bytes = tensor.bytes();
  const bool together = bytes <= short_bytes() && !is_on_gpu(tensor);
  if (together && bytes > 0) {
    std::memcpy(message->first.data() + sizeof(header), tensor.raw_data(), bytes);
  }
  const auto start = [&](const void* data, std::size_t count) {
    MpiWorld::check(MPI_Isend(data, static_cast<int>(count), MPI_BYTE, to, tag, comm_,
                              &message->requests.emplace_back(MPI_REQUEST_NULL)),
                    words);
  };
  start(message->first.data(), sizeof(header) + (together ? bytes : 0));
  const auto* data = static_cast<const std::byte*>(tensor.raw_data());
  for (std::size_t done = 0; !together && done < bytes; done += kLargest) {
    start(data + done, std::min(kLargest, bytes - done));
  }
  return message;
}

std::shared_ptr<MpiCommunicator::Incoming> MpiCommunicator::expect(const Tensor& tensor, int from, int tag) {
  auto message = std::make_shared<Incoming>();
  message->tensor = tensor;
  const auto words = [&] { return doing("receive", "from", from, tag); };
  const auto start = [&](void* data, std::size_t count) {
    MpiWorld::check(MPI_Irecv(data, static_cast<int>(count), MPI_BYTE, from, tag, comm_,
                              &message->requests.emplace_back(MPI_REQUEST_NULL)),
                    words);
  };
  start(message->first.data(), kFirst);
  const std::size_t bytes = tensor.bytes();
  if (bytes > short_bytes() || is_on_gpu(tensor)) {
    auto* data = static_cast<std::byte*>(message->tensor.raw_mutable_data());
    for (std::size_t done = 0; done < bytes; done += kLargest) {
      start(data + done, std::min(kLargest, bytes - done));
    }
  }
  return message;
}

void MpiCommunicator::exchange(const char* operation, const Tensor& like, Parcels& parcels) {
  synchronize({device(), Stream::kCompute});
  const int tag = mpi_tag(0, kMeeting);
  std::vector<std::shared_ptr<Outgoing>> out(parcels.size());
  std::vector<std::shared_ptr<Incoming>> in(parcels.size());
  std::vector<MPI_Request> requests;
  // The next rank first: then not all talk to the same one at once.
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const auto place = static_cast<std::size_t>(r);
    if (parcels[place].in.defined()) {
      in[place] = expect(parcels[place].in, r, tag);
      move_to(requests, in[place]->requests);
    }
    if (parcels[place].out.defined()) {
      out[place] = post(operation, like, parcels[place].out, r, tag);
      move_to(requests, out[place]->requests);
    }
  }
  try {
    world_.wait(requests, patience_, [&] { return doing(operation); });
  } catch (...) {
    std::for_each(in.begin(), in.end(), [&](const auto& message) { world_.bury(message); });
    std::for_each(out.begin(), out.end(), [&](const auto& message) { world_.bury(message); });
    throw;
  }
  const Header mine(operation, like, 0);
  for (int r = 0; r < size(); ++r) {
    const auto& message = in[static_cast<std::size_t>(r)];
    if (message == nullptr) {
      continue;
    }
    const Header header = message->header();
    if (header.operation != mine.operation) {
      throw CommError(
          fmt::format("{}: rank {} calls {} at this point; all ranks of a group call the same ones in the same order",
                      doing(operation), member(r), header.operation.data()));
    }
    if (!header.is_like(mine)) {
      throw CommError(
          fmt::format("{}: {} here, {} on rank {}", doing(operation), type_of(like), header.type(), member(r)));
    }
    const std::size_t bytes = message->tensor.bytes();
    if (bytes > 0 && bytes <= short_bytes() && !is_on_gpu(message->tensor)) {
      std::memcpy(message->tensor.raw_mutable_data(), message->first.data() + sizeof(Header), bytes);
    }
  }
}

void MpiCommunicator::forget_sent() {
  while (!sent_.empty() && world_.are_done(sent_.front()->requests)) {
    sent_.front()->tensor = {};
    sent_.pop_front();
  }
}

std::shared_ptr<MpiCommunicator::Outgoing> MpiCommunicator::send_off(const char* operation, const Tensor& tensor,
                                                                     int to, int tag) {
  forget_sent();
  synchronize({device(), Stream::kCompute});
  sent_.push_back(post(operation, tensor, tensor, to, mpi_tag(tag, kMessage)));
  return sent_.back();
}

PendingSend MpiCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  const auto number = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  const auto message = send_off("send", tensor.detach(), to, tag);
  if (clock().kind() == ClockKind::virtual_time) {
    MPI_Irecv(&message->taken_at, 1, MPI_DOUBLE, to, mpi_tag(tag, kTaken), comm_,
              &message->requests.emplace_back(MPI_REQUEST_NULL));
  }
  const auto end = [this, message, number] {
    message->tensor = {};
    group().recorder->end(number);
  };
  const auto wait = [this, message, to, tag, work = current_work(), end] {
    Waiting waiting(clock());
    world_.wait(message->requests, patience_, [&] {
      const Activity then(work.operation, work.stage, work.microbatch);
      return doing("send", "to", to, tag);
    });
    waiting.until(message->taken_at);
    end();
  };
  return {wait, [this, message, end] {
            const bool taken = world_.are_done(message->requests);
            if (taken) {
              end();
            }
            return taken;
          }};
}

Tensor MpiCommunicator::take(const char* operation, Tensor tensor, int from, int tag) {
  const Recorded recorded(*group().recorder, message_event(operation, from, tag, tensor.dtype(), tensor.shape()));
  const Span span("receive", "wait");
  Waiting waiting(clock());
  const auto words = [&] { return doing(operation, "from", from, tag); };
  const double now = time_now();
  const auto message = expect(tensor, from, mpi_tag(tag, kMessage));
  try {
    const std::span<MPI_Request> requests(message->requests);
    world_.wait(requests.first(1), patience_, words);
    const Header header = message->header();
    if (!header.is_like(Header(operation, tensor, 0))) {
      throw CommError(fmt::format("{}: {} was expected, {} came", words(), type_of(tensor), header.type()));
    }
    world_.wait(requests, patience_, words);
  } catch (...) {
    world_.bury(message);
    throw;
  }
  const std::size_t bytes = tensor.bytes();
  if (bytes > 0 && message->requests.size() == 1) {
    std::memcpy(tensor.raw_mutable_data(), message->first.data() + sizeof(Header), bytes);
  }
  if (clock().kind() == ClockKind::virtual_time) {
    const double taken_at = std::max(now, message->header().arrival);
    waiting.until(taken_at);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&taken_at, 1, MPI_DOUBLE, from, mpi_tag(tag, kTaken), comm_, &request);
    world_.wait({&request, 1}, patience_, words);  // short: MPI has it at once
  }
  return tensor;
}

PendingReceive MpiCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  return PendingReceive(
      [this, shape, dtype, from, tag] { return take("receive", Tensor::empty(shape, dtype, device()), from, tag); });
}

void MpiCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  const auto message = send_off("send_number", Tensor::from(std::vector{number}, {1}), to, tag);
  if (clock().kind() == ClockKind::virtual_time) {  // nobody waits for it to be taken, but it is told
    MPI_Irecv(&message->taken_at, 1, MPI_DOUBLE, to, mpi_tag(tag, kTaken), comm_,
              &message->requests.emplace_back(MPI_REQUEST_NULL));
  }
}

double MpiCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  return take("receive_number", Tensor::empty({1}, DType::float64), from, tag).item();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  MPI_Comm comm = MPI_COMM_NULL;
  // MPI takes colours from 0, so the first member stands for the group's. All have come by now.
  world_.guard("MPI_Comm_split", [&] { MPI_Comm_split(comm_, part.members[0], part.rank, &comm); });
  return std::make_unique<MpiCommunicator>(world_, comm, std::move(part), patience_.waits);
}

std::unique_ptr<Communicator> MpiCommunicator::duplicate() {
  MPI_Comm comm = MPI_COMM_NULL;
  world_.guard("MPI_Comm_dup", [&] { MPI_Comm_dup(comm_, &comm); });
  // It sleeps while it waits: it shares the core of the rank's own thread, which has work to do.
  return std::make_unique<MpiCommunicator>(world_, comm, duplicated(), ThreadWorld::Waits::sleeping);
}

}  // namespace stagecoach
