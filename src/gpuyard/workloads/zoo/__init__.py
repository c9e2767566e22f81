"""The well-known models, each a factory of a trainable `Task`, by their id in the catalog.

Written from the papers. The registry holds names only, so that reading it doesn't import torch.
"""

MODELS: dict[str, str] = {
    "alexnet": "gpuyard.workloads.zoo.images:alexnet",
    "vgg16": "gpuyard.workloads.zoo.images:vgg16",
    "resnet18": "gpuyard.workloads.zoo.resnet:resnet18",
    "resnet18-cifar": "gpuyard.workloads.zoo.resnet:resnet18_cifar",
    "resnet50": "gpuyard.workloads.zoo.resnet:resnet50",
    "resnet101": "gpuyard.workloads.zoo.resnet:resnet101",
    "resnet152": "gpuyard.workloads.zoo.resnet:resnet152",
    "inception-v3": "gpuyard.workloads.zoo.inception:inception_v3",
    "bert-base": "gpuyard.workloads.zoo.bert:bert_base",
    "bert-large": "gpuyard.workloads.zoo.bert:bert_large",
    "gnmt": "gpuyard.workloads.zoo.gnmt:gnmt",
    "ssd": "gpuyard.workloads.zoo.ssd:ssd300",
    "gpt2": "gpuyard.workloads.zoo.gpt2:gpt2",
    "gpt2-medium": "gpuyard.workloads.zoo.gpt2:gpt2_medium",
    "gpt2-large": "gpuyard.workloads.zoo.gpt2:gpt2_large",
    "gpt2-xl": "gpuyard.workloads.zoo.gpt2:gpt2_xl",
    "vit-b-16": "gpuyard.workloads.zoo.vit:vit_b_16",
    "vit-l-16": "gpuyard.workloads.zoo.vit:vit_l_16",
    "transformer-small": "gpuyard.workloads.zoo.gpt2:transformer_small",
    "spoken-digits-linear": "gpuyard.workloads.spoken_digits:linear",
    "spoken-digits-conv": "gpuyard.workloads.spoken_digits:conv",
}
