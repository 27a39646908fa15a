"""Writes the graphs of this folder: small pre-norm transformers of TensorFlow, as tf2onnx exports them.

Run with tensorflow, tf_keras and tf2onnx installed: python test/data/tensorflow/make_graphs.py
Each way to write a LayerNorm gives other nodes:

keras3        the layer of Keras 3: x * (r * gamma) + (beta - mean * (r * gamma)), with r = 1 / sqrt(variance + epsilon)
keras2        the layer of Keras 2 with its own epsilon, 1e-3: FusedBatchNormV3 in training on [1, rows, width, 1]
keras2_small  the same layer with epsilon 1e-6: the formula of keras3
function      a tf.function: (x - mean) * r * gamma + beta, which TensorFlow turns into (x - mean) * (r * gamma) + beta

Parameters are random, so the files differ from run to run in nothing but the versions of what wrote them.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf2onnx
import tf_keras

WORDS, PLACES, WIDTH, HEADS, BLOCKS, CLASSES = 11, 6, 8, 2, 2, 5
OPSETS = (13, 18)


class Decoder(tf.Module):
    """Embeddings, blocks of attention and MLP behind norms, a last norm and a head."""

    def __init__(self, norm):
        super().__init__()
        random = np.random.default_rng(0)

        def variable(*shape, mean=0.1):
            return tf.Variable(random.normal(mean, shape[0] ** -0.5, shape).astype(np.float32))

        def affine(inputs, outputs):
            return variable(inputs, outputs), variable(outputs)

        def gain():  # weight and bias of a norm
            return random.normal(1, 0.3, WIDTH).astype(np.float32), random.normal(0.1, 0.3, WIDTH).astype(np.float32)

        self.words, self.places = variable(WORDS, WIDTH), variable(PLACES, WIDTH)
        self.blocks = [
            {
                "attention_norm": norm(*gain()),
                "qkv": affine(WIDTH, 3 * WIDTH),
                "out": affine(WIDTH, WIDTH),
                "mlp_norm": norm(*gain()),
                "up": affine(WIDTH, 2 * WIDTH),
                "down": affine(2 * WIDTH, WIDTH),
            }
            for _ in range(BLOCKS)
        ]
        self.last_norm, self.head = norm(*gain()), affine(WIDTH, CLASSES)

    def __call__(self, ids):
        def linear(x, layer):
            weight, bias = layer
            return tf.nn.bias_add(tf.tensordot(x, weight, 1), bias)

        x = tf.gather(self.words, ids) + self.places
        for block in self.blocks:
            qkv = linear(block["attention_norm"](x), block["qkv"])
            parts = tf.reshape(qkv, [-1, PLACES, 3, HEADS, WIDTH // HEADS])
            q, k, v = (tf.transpose(parts[:, :, i], [0, 2, 1, 3]) for i in range(3))
            weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (WIDTH // HEADS) ** -0.5)
            joined = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [-1, PLACES, WIDTH])
            x = x + linear(joined, block["out"])
            x = x + linear(tf.nn.relu(linear(block["mlp_norm"](x), block["up"])), block["down"])
        return linear(self.last_norm(x), self.head)


def layer_of(library, **options):
    def norm(weight, bias):
        layer = library.layers.LayerNormalization(**options)
        layer.build((None, PLACES, WIDTH))
        layer.set_weights([weight, bias])
        return layer

    return norm


def function(weight, bias):
    def norm(x):
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * weight + bias

    return norm


NORMS = {
    "keras3": layer_of(keras),
    "keras2": layer_of(tf_keras),
    "keras2_small": layer_of(tf_keras, epsilon=1e-6),
    "function": function,
}

if __name__ == "__main__":
    for name, norm in NORMS.items():
        decoder = tf.function(Decoder(norm))
        ids = [tf.TensorSpec((None, PLACES), tf.int32, name="ids")]
        for opset in OPSETS:
            path = Path(__file__).parent / f"{name}_{opset}.onnx"
            tf2onnx.convert.from_function(decoder, ids, opset=opset, output_path=str(path))
            print(path.name, path.stat().st_size)
