#include "parallel/pipeline/gather.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>

namespace stagecoach {
namespace {

constexpr int kTag = 0;

NamedTensors tensors_of_layer(const std::string& layer, const NamedTensors& tensors) {
  NamedTensors found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
               [&](const auto& named) { return named.first.rfind(layer + ".", 0) == 0; });
  return found;
}

void send_text(Communicator& comm, const std::string& text, int to) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto length = static_cast<std::int64_t>(bytes.size());
  comm.send_number(static_cast<double>(length), to, kTag);
  if (length > 0) {
    comm.send(Tensor::from(bytes, {length}, comm.device()), to, kTag);
  }
}

std::string receive_text(Communicator& comm, int from) {
  const auto length = static_cast<std::int64_t>(comm.receive_number(from, kTag));
  if (length == 0) {
    return "";
  }
  const auto bytes = comm.receive({length}, DType::uint8, from, kTag).to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

/// A line a tensor: its name, type and extents.
std::string list_of(const NamedTensors& tensors) {
  std::ostringstream list;
  for (const auto& [name, tensor] : tensors) {
    list << name << ' ' << static_cast<int>(tensor.dtype()) << ' ' << tensor.dims();
    for (int d = 0; d < tensor.dims(); ++d) {
      list << ' ' << tensor.size(d);
    }
    list << '\n';
  }
  return list.str();
}

void send_tensors(Communicator& comm, const NamedTensors& tensors, int to) {
  send_text(comm, list_of(tensors), to);
  for (const auto& [name, tensor] : tensors) {
    comm.send(tensor.clone(), to, kTag);  // the receiver keeps what it gets, and training goes on here
  }
}

NamedTensors receive_tensors(Communicator& comm, int from) {
  NamedTensors tensors;
  std::istringstream list(receive_text(comm, from));
  int dtype = 0;
  int dims = 0;
  for (std::string name; list >> name >> dtype >> dims;) {
    std::int64_t extents[Shape::kMaxDims] = {};
    for (int d = 0; d < dims; ++d) {
      list >> extents[d];
    }
    tensors.emplace_back(name, comm.receive(Shape(extents, dims), static_cast<DType>(dtype), from, kTag).to(Device{}));
  }
  return tensors;
}

}  // namespace

NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine) {
  NamedTensors all;
  for (const auto& [layer, holder] : layers) {
    if (holder == comm.rank()) {
      const NamedTensors tensors = tensors_of_layer(layer, mine);
      if (comm.rank() == 0) {
        for (const auto& [name, tensor] : tensors) {
          all.emplace_back(name, tensor.to(Device{}));
        }
      } else {
        send_tensors(comm, tensors, 0);
      }
    } else if (comm.rank() == 0) {
      const NamedTensors tensors = receive_tensors(comm, holder);
      all.insert(all.end(), tensors.begin(), tensors.end());
    }
  }
  return all;
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  if (comm.rank() != 0) {
    send_text(comm, mine, 0);
    return {};
  }
  std::vector<std::string> all{mine};
  for (int r = 1; r < comm.size(); ++r) {
    all.push_back(receive_text(comm, r));
  }
  return all;
}

NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors) {
  if (layers.empty()) {
    return tensors;
  }
  NamedTensors found;
  for (const auto& [layer, holder] : layers) {
    if (holder == rank) {
      const NamedTensors of_layer = tensors_of_layer(layer, tensors);
      found.insert(found.end(), of_layer.begin(), of_layer.end());
    }
  }
  return found;
}

}  // namespace stagecoach
