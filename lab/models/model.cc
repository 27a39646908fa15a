#include "lab/models/model.h"

#include "lab/models/names.h"

namespace rmsnorm::lab {
namespace {

constexpr std::array<const char*, 3> kPlacements = {"pre", "post", "both"};

}  // namespace

std::string name_of(Placement placement) { return kPlacements[static_cast<std::size_t>(placement)]; }
Placement placement(const std::string& name) { return value_of<Placement>("placement", name, kPlacements); }

// Modules come in the order in which they were registered, which every model makes that of its forward pass.
std::vector<std::pair<std::string, NormImpl*>> ModelImpl::norms() {
  std::vector<std::pair<std::string, NormImpl*>> found;
  for (const auto& module : named_modules(std::string(), /*include_self=*/false)) {
    if (auto* norm = module.value()->as<NormImpl>()) found.emplace_back(module.key(), norm);
  }
  return found;
}

torch::Tensor ModelImpl::forward_cached(const torch::Tensor&, KeyValueCache&) {
  throw std::logic_error("this model keeps no keys and values");
}

std::int64_t ModelImpl::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

void require(bool holds, const char* what, std::int64_t value, const std::string& rule) {
  if (!holds) throw std::invalid_argument(fmt::format("{} is {}; it must be {}", what, value, rule));
}

void require_heads(std::int64_t width, std::int64_t heads) {
  require(heads >= 1 && width >= 1 && width % heads == 0, "width", width,
          fmt::format("a multiple of the heads, {}", heads));
}

void check_tokens(const torch::Tensor& tokens, std::int64_t vocabulary, std::int64_t time_limit, std::int64_t before) {
  if (tokens.dim() != 2 || tokens.scalar_type() != torch::kLong || tokens.numel() == 0) {
    throw std::invalid_argument(fmt::format("input is {} {}; it must be tokens [batch, time] of type Long, not empty",
                                            c10::toString(tokens.scalar_type()), c10::str(tokens.sizes())));
  }
  if (time_limit > 0) {
    require(before + tokens.size(1) <= time_limit, "time", before + tokens.size(1),
            fmt::format("at most the context, {}", time_limit));
  }
  const auto [low, high] = torch::aminmax(tokens);
  const std::string rule = fmt::format("from 0 to {}, the vocabulary", vocabulary - 1);
  require(low.item<std::int64_t>() >= 0, "token", low.item<std::int64_t>(), rule);
  require(high.item<std::int64_t>() < vocabulary, "token", high.item<std::int64_t>(), rule);
}

void check_images(const torch::Tensor& images, std::int64_t channels) {
  if (images.dim() != 4 || images.size(1) != channels || !images.is_floating_point()) {
    throw std::invalid_argument(
        fmt::format("input is {} {}; it must be images [batch, {}, height, width] of a floating type",
                    c10::toString(images.scalar_type()), c10::str(images.sizes()), channels));
  }
}

}  // namespace rmsnorm::lab
